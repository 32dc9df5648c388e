"""How a new connection is set up before it carries requests: versions, and the login (SASL)."""
