"""C types for layout.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.sources.cassandra.native cimport ops

cdef int _HEADERS_MAX, _SLOTS_PER_TABLE
cdef uint64_t _MULTIPLIER, _MASK


@cython.final
cdef class Header:
    cdef const unsigned char[::1] raw
    cdef readonly Py_ssize_t length
    cdef const int[::1] columns, order
    cdef readonly int count, rises, simple
    cdef bytes fields


@cython.final
cdef class TableLayout:
    cdef readonly int index
    cdef readonly object table
    cdef const int[::1] fixed
    cdef const int[::1] complex
    cdef readonly int clustering_first
    cdef readonly int clustering_count
    cdef readonly dict by_name
    cdef list headers
    cpdef remember(self, Header header)


@cython.final
cdef class Catalogue:
    cdef readonly list tables
    cdef readonly list layouts
    cdef int bits
    cdef int[::1] slots
    cdef uint64_t[::1] ids
    cdef inline int _slot(self, uint64_t high, uint64_t low) noexcept

    @cython.locals(slot=int, index=int)
    cdef int find(self, uint64_t high, uint64_t low) noexcept
