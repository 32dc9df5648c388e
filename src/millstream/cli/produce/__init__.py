"""``millstream produce``: reading input and sending it."""
