"""The log: where records live. Files, but no clock, no threads and no sockets.

From the outside in:

- ``directory``: a broker's data directory with its lock, topics (``topics``) and all logs.
- ``partition``: one partition's log, as the broker uses it; ``store`` has its files' side, ``config`` its
  settings, ``validation`` what may be appended, ``producers`` who may append what next, ``epochs`` how
  readers learn of lost records.
- ``segments`` and ``segment``: the files in their order, and one of them with its ``index``.
- ``recovery``: opening what a crash has left. ``durability``: what has yet to reach the disk. ``snapshots``
  and ``checkpoints``: small files that make opening quick.
- ``retention`` and ``compaction`` (with ``swap`` and ``raw_records``): what goes, and when.
- ``files``: every system call, in one place that tests replace.

What is not obvious:

- A segment ends exactly where the next begins, compacted or not. A gap between two therefore means that a
  crash took the end of the first, and the second goes too.
- Index files and snapshots are written without waiting for the disk. They are trusted only where a later sync
  covered them or where their checksum is right, and found out from the batches otherwise.
- Whatever is cut off is cut durably before anything else is written, or it could come back after a power cut.
- After a start that was not clean every log begins a new leader epoch, since lost records leave no trace. The
  number comes from one counter of the data directory, so that no log has to write before it can open.
"""
