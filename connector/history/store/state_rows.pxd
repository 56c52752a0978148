"""C types for state_rows.py."""

cimport cython

cdef Py_ssize_t _COLUMNS
cdef bytearray _EMPTY

@cython.locals(groups=list, values=list, left=list, has_partition=bint, name=tuple, key=bytes, row=bytes, state=bytes, at=Py_ssize_t)
cpdef tuple new_rows(dict hashes, dict known, dict states, dict expiries, Py_ssize_t many)
