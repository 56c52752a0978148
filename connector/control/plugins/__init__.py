"""Finding the plugins that a statement means, and asking them in a process of their own."""
