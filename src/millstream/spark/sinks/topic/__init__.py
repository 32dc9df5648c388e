"""A topic as a sink."""
