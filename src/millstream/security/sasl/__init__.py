"""The messages of the SASL mechanisms, for the client's side and the broker's. No sockets, no clock."""
