"""Runs the jobs that statements ask for, each in processes of its own."""
