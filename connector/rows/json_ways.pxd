"""The numbers of json_ways.py as C constants."""

cdef enum:
    SAME = 0
    BLOB = 1
    TIMESTAMP = 2
    DATE = 3
    CALLED = 4
    SET = 5
    LIST = 6
    MAP = 7
    FIELDS = 8
