"""Who may connect, as whom, and what they may do: listeners, TLS, SASL, principals and ACLs."""
