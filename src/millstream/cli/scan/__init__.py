"""``millstream scan``: a range of a topic, chosen, filtered, and printed or written to a file."""
