"""The web console: ``millstream console``. Users with the role ``change`` can change something.

One round of admin calls makes a ``cluster_snapshot``. The ``sampler`` makes one each refresh while pages are
viewed, and keeps what rates and charts need (``views``, pure). ``web/pages`` turns that into JSON answers and
pages: everything that a page shows is also available as JSON. ``login`` knows who may look, and change.
``web/server`` is the process.
"""
