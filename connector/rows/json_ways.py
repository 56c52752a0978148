"""How values are written as JSON; json_ways.pxd gives the same names the same values."""

SAME = 0  # A number, a string, or true or false.
BLOB = 1  # The forms of CQL's SELECT JSON.
TIMESTAMP = 2
DATE = 3
CALLED = 4  # Converted by a function.
SET = 5  # Written cell by cell.
LIST = 6
MAP = 7
FIELDS = 8
