"""Record batches: headers, records, checksums and compression, in plain Python and as compiled loops."""
