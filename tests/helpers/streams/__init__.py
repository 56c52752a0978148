"""Topics that jobs wrote, for tests of their consumers."""
