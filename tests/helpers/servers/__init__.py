"""Servers that tests start: nodes, brokers, registries, agents."""
