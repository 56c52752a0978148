"""Ways to break one rule each, to show that a test notices."""
