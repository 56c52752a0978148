"""The domain store: the state of a job, over any key-value backend."""
