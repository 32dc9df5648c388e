"""Kafka's wire protocol: bytes to values and back. No sockets, no clock."""
