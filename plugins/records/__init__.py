"""Records on their way from a source to a sink, their encoding and transforms."""
