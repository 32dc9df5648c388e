"""``millstream demo``: a group that changes while it counts, and a topic that becomes a table, exactly once.

``show`` is the whole, ``counting`` and ``loading`` are its halves, ``story`` tells them. ``group`` directs
the members, ``member`` is one of them as a process of its own, ``results`` is the database that they share,
and ``customers`` and ``orders`` are what ``feed`` sends.
"""
