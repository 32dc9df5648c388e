"""The web console: ``millstream console``. It looks, and changes nothing.

One round of admin calls (``looking``) makes a snapshot of the cluster. A shared sampler (``sampler``) makes
one each refresh while somebody looks, however many do, and keeps what rates and charts need (``sampling``,
pure). ``answers`` turns that into plain values, which ``api`` gives as JSON and
``pages`` as HTML: whatever a page shows, a script can ask for. ``server`` is the process around it.
"""
