"""C types for digest_exchange.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.sources.cassandra.native cimport ops

cdef int _WORDS, _D0, _D1, _BEFORE, _BEGIN, _LENGTH


@cython.final
cdef class Exchange:
    cdef readonly bytes key
    cdef readonly uint64_t k0, k1
    cdef public int readers
    cdef readonly uint64_t bytes_max
    cdef uint64_t known_max, bytes_mask, known_mask
    cdef readonly unsigned char[::1] room
    cdef uint64_t[::1] records, newest
    cdef readonly uint64_t added
    cdef readonly uint64_t[::1] written
    cdef object stretches
    cdef Py_ssize_t placed

    @cython.locals(length=uint64_t, at=uint64_t, record=Py_ssize_t, chain=Py_ssize_t)
    cpdef uint64_t add(self, const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t end, uint64_t d0, uint64_t d1) except? 0
    @cython.locals(number=uint64_t, record=Py_ssize_t)
    cpdef uint64_t find(self, uint64_t d0, uint64_t d1, uint64_t length) noexcept
    @cython.locals(begin=uint64_t)
    cpdef bint has(self, uint64_t number) noexcept
    cpdef int64_t begin_of(self, uint64_t number) noexcept
