"""Fetching as a pure core: positions, fetch requests and sessions, and the buffer of fetched data."""
