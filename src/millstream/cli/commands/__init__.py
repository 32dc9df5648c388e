"""One file per command, and what each does."""
