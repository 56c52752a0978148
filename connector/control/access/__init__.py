"""Permissions to change things, and the audit log of every attempt."""
