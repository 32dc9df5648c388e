"""Reading a range of offsets inside a Spark task, as Arrow batches."""
