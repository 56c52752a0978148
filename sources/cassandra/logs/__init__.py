"""A node's log on disk: its directory, index files, pins and reads of earlier entries."""
