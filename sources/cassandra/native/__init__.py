"""Byte operations in C, and the numbers that compiled modules share."""
