"""What the coordinator knows: groups, members, timers, and the records that make them durable."""
