"""An audit of a job's topics: their content compared with the books of the job."""
