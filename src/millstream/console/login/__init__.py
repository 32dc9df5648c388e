"""Who may look at the console: users with passwords, a bearer token, sessions, and limits on guessing."""
