"""C types for digest_exchange.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.sources.cassandra.native cimport ops

cdef Py_ssize_t _ANSWER_KEPT
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
    cdef object stretches, answers
    cdef Py_ssize_t placed

    cpdef answer(self, Py_ssize_t count)
    @cython.locals(length=uint64_t, begin=uint64_t)
    cpdef uint64_t add(self, const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t end, uint64_t d0, uint64_t d1) except? 0
    cpdef uint64_t left(self) noexcept
    @cython.locals(begin=uint64_t)
    cpdef uint64_t reserve(self, uint64_t count) noexcept
    @cython.locals(record=Py_ssize_t, chain=Py_ssize_t)
    cdef inline uint64_t note(self, uint64_t begin, uint64_t length, uint64_t d0, uint64_t d1) noexcept
    cdef inline void fetch_newest(self, uint64_t d0) noexcept
    @cython.locals(number=uint64_t)
    cdef inline void fetch_record(self, uint64_t d0) noexcept
    @cython.locals(number=uint64_t, record=Py_ssize_t)
    cpdef uint64_t find(self, uint64_t d0, uint64_t d1, uint64_t length) noexcept
    @cython.locals(begin=uint64_t)
    cpdef bint has(self, uint64_t number) noexcept
    cpdef int64_t begin_of(self, uint64_t number) noexcept
