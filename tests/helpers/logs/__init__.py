"""Logs that tests write."""
