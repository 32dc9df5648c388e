"""``millstream load`` and its subcommands."""
