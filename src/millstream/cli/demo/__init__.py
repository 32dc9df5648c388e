"""``millstream demo``: customers per country, counted by a consumer group that changes while it works.

``story`` tells it, ``group`` directs it, ``member`` is one consumer of the group as a process of its own,
``results`` is the database that the members share, and ``customers`` is what they count.
"""
