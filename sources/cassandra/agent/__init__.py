"""Serves logs to readers on other machines, and reads the logs that such an agent serves."""
