"""A ring and a job as state machines, and the checks of what the job did."""
