"""The numbers of kinds.py as C constants."""

cdef enum:
    WHOLE = 0
    CELLS = 1
    FIELDS = 2
    INSERT = 0
    DELETE = 2
    DELETE_RANGE = 3
    DELETE_PARTITION = 4
