"""Schemas of messages: publishes them, and finds them for consumers."""
