"""The HTTP side of the console: pages, JSON, guards and the server."""
