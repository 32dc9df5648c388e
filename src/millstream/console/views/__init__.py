"""Numbers, rates, charts and records as the console shows them. Pure."""
