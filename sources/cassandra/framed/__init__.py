"""Logs framed once for many splits: their entries, sorted by split, and the reader of these."""
