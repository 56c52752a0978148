"""Reads logs once for all shards of bulk work."""
