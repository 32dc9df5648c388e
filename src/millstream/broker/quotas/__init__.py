"""Quotas of clients: how much each may write, read and ask of the broker."""
