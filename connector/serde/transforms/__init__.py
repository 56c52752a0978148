"""Transforms and predicates under Kafka Connect's names, and the chain that applies them."""
