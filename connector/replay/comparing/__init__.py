"""Compares what logs, topics, tables and files hold, and reports what differs."""
