"""Reads a range of offsets inside a Spark task, as Arrow record batches."""
