"""Where a Delta table is: a local directory, or an object store."""
