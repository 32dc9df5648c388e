"""``millstream consume``: reading records and printing them."""
