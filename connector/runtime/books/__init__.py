"""The books of a job, and the report of a run."""
