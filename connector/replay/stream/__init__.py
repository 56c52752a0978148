"""A job as a stream of micro-batches: the ends of batches, their checkpoints, and the books."""
