"""Benchmarks: peers and us in one run, alternating, medians and ratios. ``make bench`` runs them all."""
