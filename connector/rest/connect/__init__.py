"""Kafka Connect's REST API: connectors, their plugins, and parsing of requests."""
