"""Options that reads and writes of ``format("millstream")`` share."""
