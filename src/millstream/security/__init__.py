"""What secured clients and brokers share: SASL exchanges, and certificates and keys for TLS."""
