"""Histories for tests: made from recordings, or change by change."""
