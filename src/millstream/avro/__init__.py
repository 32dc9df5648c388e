"""Avro to Arrow: a writer's schema becomes a flat program, which one compiled loop runs for all records."""
