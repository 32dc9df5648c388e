"""The user's thread: polling, callbacks, commits and questions, one caller at a time."""
