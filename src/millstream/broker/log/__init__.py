"""The logs of partitions: files, but no clock, no threads and no sockets.

From the outside in:

- ``directory``: a broker's data directory with its lock, topics (``topics``) and all logs.
- ``partition``: one partition's log, as the broker uses it. ``store`` holds its state, ``repair`` cuts it
  after a failed write or sync. ``config`` has its settings, ``validation`` checks what is appended,
  ``producers`` the sequences of idempotent producers, ``epochs`` lets readers detect lost records.
- ``segments``: the files in order, each with its indexes.
- ``recovery``: loading a directory, after a clean stop or a crash. ``durability``: what is not synced yet.
- ``upkeep``: retention and compaction.
- ``files``: every system call, in one place that tests replace.

What is not obvious:

- A segment ends exactly where the next begins, compacted or not. A gap between two therefore means that a
  crash took the end of the first; the second is then dropped too.
- Index files and snapshots are written without waiting for the disk. They are used only if a later sync
  covered them or their checksum is right; otherwise they are rebuilt from the batches.
- What is cut off is cut durably before anything else is written, or it could come back after a power cut.
- After a start that was not clean, every log begins a new leader epoch, because lost records leave no trace.
  The number comes from one counter of the data directory, so that no log has to write before it can open.
"""
