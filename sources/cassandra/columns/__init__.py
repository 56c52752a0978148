"""Writes changes as Arrow columns, for Spark."""
