"""Opening a log: from its snapshots after a clean stop, or by scanning it after a crash."""
