"""A load at work: group membership, planning, cycles, commits and retries."""
