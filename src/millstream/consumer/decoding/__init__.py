"""Record batches into columns, and columns into records or Arrow batches."""
