"""The commands about who may change what, and who did."""
