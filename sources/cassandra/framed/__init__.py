"""Logs framed once for many splits: their entries sorted by split, and read from there."""
