"""Pages about bulk work: each is one file, with its charts in it."""
