"""The books of a job, and what a run reports of them."""
