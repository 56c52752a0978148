"""Changes that break one rule each, to show that a test detects it."""
