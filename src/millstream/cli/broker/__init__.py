"""``millstream broker``: its options and the process."""
