"""The Parquet files of a Delta table: writing, statistics, partition columns, reading."""
