"""How values are written as JSON; json_ways.pxd gives the same names the same values."""

SAME = 0  # A number, a string, or true or false.
BLOB = 1  # The forms of CQL's SELECT JSON.
TIMESTAMP = 2
DATE = 3
CALLED = 4  # What a function makes of it.
BY_CELL = 5  # A collection or UDT that is written cell by cell: functions make it, too.
