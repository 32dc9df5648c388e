"""What consumer, producer and admin share: the I/O thread, connections, metadata and retries."""
