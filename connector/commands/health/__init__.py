"""The commands that show the health of jobs."""
