"""Logs that are read once for all shards of bulk work."""
