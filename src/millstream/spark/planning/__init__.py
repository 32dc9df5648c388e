"""Plans a read: which offsets it covers, what is lost, and how ranges become tasks. Pure."""
