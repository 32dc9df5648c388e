"""Retention and compaction: which segments go, and how compacted ones replace them."""
