"""Numbers of folding; kinds.pxd gives the same names the same values, for compiled modules."""

# How a column is written.
WHOLE = 0
CELLS = 1  # Each element of a collection by itself,
FIELDS = 2  # or each field of a UDT.

# What a change does: its number in `OPERATIONS`.
INSERT = 0
DELETE = 2
DELETE_RANGE = 3
DELETE_PARTITION = 4
