"""The commands that say how jobs are."""
