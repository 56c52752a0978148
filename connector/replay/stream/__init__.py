"""A job as a stream of micro-batches: where batches end, what is kept of them, and its books."""
