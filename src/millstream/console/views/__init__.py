"""What pages show, computed without I/O: rates, charts, numbers and previews of records."""
