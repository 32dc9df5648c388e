"""What to say about misspelt names and refused command lines."""
