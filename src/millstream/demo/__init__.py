"""``millstream demo``: a consumer group that rebalances, and a topic loaded into a table, exactly once.

``show`` runs the demo, ``counting`` and ``loading`` are its two parts, ``story`` prints. ``group`` controls
the members, each a process of ``member``; ``results`` is their database. ``feed`` sends the ``records``.
"""
