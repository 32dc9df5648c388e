"""Where loads put rows: one protocol, and the sinks that keep it."""
