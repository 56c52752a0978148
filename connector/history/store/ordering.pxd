"""C types for ordering.py."""

cimport cython
from libc.stdint cimport int64_t

cdef int _BYTES, _VALUES, _BYTE, _PLACE_BITS
cdef int64_t _PLACE

@cython.locals(count=Py_ssize_t, i=Py_ssize_t, words=int64_t[::1])
cpdef list ascending(list numbers)
@cython.locals(count=Py_ssize_t, i=Py_ssize_t, words=int64_t[::1], key=int64_t, row=int64_t, place=int64_t, made=dict, name=tuple)
cpdef dict by_hash(list names, object hash_of)
@cython.locals(other=int64_t[::1], ends=int64_t[::1], byte=int, shift=int, i=Py_ssize_t, begin=int64_t, value=Py_ssize_t)
cdef int64_t[::1] _sorted(int64_t[::1] words, Py_ssize_t count)
