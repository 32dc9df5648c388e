"""Wording of errors: bad command lines, and misspelt names of topics and groups."""
