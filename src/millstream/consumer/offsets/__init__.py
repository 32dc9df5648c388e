"""Committed offsets, as a pure core: commits and fetches of them."""
