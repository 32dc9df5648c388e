"""Group members and their coordinator in one process, under a virtual clock and a seeded network."""
