"""Numbers for folding; kinds.pxd gives them the same names, for compiled modules."""

# How a column is written.
WHOLE = 0
CELLS = 1  # Each element of a collection separately,
FIELDS = 2  # or each field of a UDT.

# The operation of a change: its number in `OPERATIONS`.
INSERT = 0
DELETE = 2
DELETE_RANGE = 3
DELETE_PARTITION = 4
