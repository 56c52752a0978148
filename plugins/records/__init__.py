"""What travels from a source to a sink, and how it is encoded and transformed."""
