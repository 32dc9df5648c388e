"""Metrics of one process: declared once, read at one moment, written in Prometheus' text format."""
