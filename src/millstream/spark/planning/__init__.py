"""Which offsets a read covers and how they are split into tasks. Pure."""
