"""Serves logs to readers on other machines, and reads what such an agent serves."""
