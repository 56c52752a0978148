"""Reads the logs and feeds the splits."""
