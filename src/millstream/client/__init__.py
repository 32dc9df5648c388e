"""What consumer, producer and admin share: connections, metadata, retries and the I/O thread."""
