"""Which schema holds at which place of a log."""
