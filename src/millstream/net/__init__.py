"""Sockets and time: the small event loop that the broker and the clients run on, and framed connections."""
