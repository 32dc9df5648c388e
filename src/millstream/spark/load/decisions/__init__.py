"""Where a load starts, how much a cycle loads, and what it commits. Pure."""
