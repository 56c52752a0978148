"""What statements do with change histories: CREATE CDC and its like, and SELECT."""
