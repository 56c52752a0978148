"""Turns the bytes of an entry into operations, changes and JSON."""
