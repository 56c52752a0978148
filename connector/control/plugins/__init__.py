"""Finds the plugins that a statement names, and asks them in a process of their own."""
