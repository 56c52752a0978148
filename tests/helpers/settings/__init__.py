"""What holds for every test of a run."""
