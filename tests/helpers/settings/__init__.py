"""Settings of a test run."""
