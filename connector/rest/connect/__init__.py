"""Kafka Connect's REST API: connectors, their plugins, and what is in requests."""
