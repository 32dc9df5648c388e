"""Other people's clients: how each is built, started and listened to."""
