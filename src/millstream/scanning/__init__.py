"""``scan``: a range of a topic as Arrow record batches, without Spark."""
