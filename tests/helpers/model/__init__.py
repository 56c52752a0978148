"""A ring and a job as state machines, and judges of what the job did."""
