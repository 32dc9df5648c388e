"""Sockets of the broker: listening, TLS handshakes, and the connection of one client."""
