"""Bugs planted on purpose, by where they are."""
