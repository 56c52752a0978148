"""C types for rejoining.py."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t

from headrace.sources.cassandra.native cimport constants, ops

cdef int _D0, _D1, _AT, _LENGTH, _WORDS, _SLOTS_MIN


@cython.final
cdef class SentBytes:
    cdef int64_t mask
    cdef int32_t[::1] slots
    cdef uint64_t[::1] records
    cdef readonly Py_ssize_t count

    @cython.locals(number=Py_ssize_t, digest=Py_ssize_t)
    cpdef add(self, int64_t at, const unsigned char[::1] kinds, const int32_t[::1] sizes, const uint64_t[::1] digests)
    @cython.locals(slot=int64_t, record=Py_ssize_t)
    cdef inline int _add(self, uint64_t d0, uint64_t d1, int64_t at, int64_t length) except -1
    @cython.locals(slot=int64_t, record=Py_ssize_t)
    cpdef int64_t find(self, uint64_t d0, uint64_t d1, int64_t length) noexcept
    @cython.locals(number=Py_ssize_t, digest=Py_ssize_t, at=Py_ssize_t, sent=Py_ssize_t, size=Py_ssize_t, begin=int64_t)
    cpdef rejoin(self, const unsigned char[::1] file, const unsigned char[::1] kinds, const int32_t[::1] sizes, const uint64_t[::1] digests, const unsigned char[::1] content, unsigned char[::1] made)
