"""Handles records, calls and tables that fail."""
