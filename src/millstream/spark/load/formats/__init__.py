"""How values are read: one file for each format."""
