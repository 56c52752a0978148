"""Schemas of messages: where they are published, and how a consumer finds them."""
