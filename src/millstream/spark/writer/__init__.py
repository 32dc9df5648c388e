"""The writer of the format ``millstream``: each row of a DataFrame becomes a record, at least once.

``writer`` is what Spark calls, ``options`` and ``columns`` check what the user gave before any task runs, and
``tasks`` sends Arrow record batches with a producer from ``pool``. ``modes`` makes ``save()`` without a mode
append, as Spark's own sink does.
"""
