"""Group membership, as a pure core: the client side of Kafka's classic group protocol."""
