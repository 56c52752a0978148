"""C types for replica_groups.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.sources.cassandra.native cimport ops


@cython.final
cdef class Groups:
    cdef readonly int hosts
    cdef uint64_t[::1] masks, expected
    cdef int[::1] needed, following, bounds
    cdef int[::1] first
    cdef int64_t[::1] tokens
    cdef int[::1] groups
    @cython.locals(low=int, high=int, begin=int, middle=int)
    cpdef int find(self, int keyspace, int64_t token) noexcept
    @cython.locals(at=int)
    cdef inline int met(self, int group, uint64_t seen) noexcept
