"""C types for arrow_columns.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.sources.cassandra.native cimport ops

cdef int _ROWS_FIRST
cdef int _NOT, _FIXED, _BITS, _PIECES, _LISTS, _FIELDS


cdef class ArrowColumn:
    cdef readonly object type
    cdef readonly Py_ssize_t count
    cdef readonly bint is_map
    cdef bint has_pieces, has_items
    cdef int stored, width
    cdef Py_ssize_t room, values_room, size
    cdef readonly list children
    cdef tuple owners
    cdef unsigned char[::1] valid
    cdef unsigned char[::1] values
    cdef int[::1] offsets
    cdef uint64_t[::1] words

    @cython.locals(used=Py_ssize_t)
    cpdef begin(self)
    cdef Py_ssize_t _fixed_bytes(self, Py_ssize_t rows) noexcept
    cdef _take_room(self, Py_ssize_t rows, Py_ssize_t values_bytes)
    @cython.locals(child=ArrowColumn)
    cpdef truncate(self, Py_ssize_t count)
    @cython.locals(child=ArrowColumn, i=Py_ssize_t)
    cpdef int null(self) except -1
    cpdef int finish(self) except -1
    @cython.locals(child=ArrowColumn)
    cdef int _end(self) except -1
    cdef Py_ssize_t _doubled(self) noexcept
    cdef int _reserve(self, Py_ssize_t count) except -1
    @cython.locals(at=Py_ssize_t, i=int)
    cpdef int number(self, int64_t number) except -1
    @cython.locals(at=Py_ssize_t, bit=int)
    cpdef int flag(self, int flag) except -1
    cpdef int constant(self, bytes content) except -1
    cdef int join(self, const unsigned char[::1] view, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t tail, Py_ssize_t tail_end) except -1
