"""Decides which segments may be deleted, and deletes them."""
