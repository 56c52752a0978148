"""Runs the jobs that statements define, each in processes of its own."""
