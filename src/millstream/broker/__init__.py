"""The embedded broker: one process, durable, speaking Kafka's wire protocol."""
