"""C types for sharing.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.sources.cassandra.schema.layout cimport Catalogue

cdef int _WHOLE, _BITS, _MASK, _REPLICAS_MAX


@cython.final
cdef class Shares:
    cdef Catalogue catalogue
    cdef int[::1] keyspaces, first, shares
    cdef int64_t[::1] tokens

    @cython.locals(table=int, keyspace=int, begin=int, end=int, low_at=int, high_at=int, middle=int)
    cpdef int of(self, uint64_t high, uint64_t low, int64_t token) noexcept
    cpdef bint sends(self, int share, uint64_t digest) noexcept
