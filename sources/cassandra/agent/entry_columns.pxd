"""C types for entry_columns.py."""

cimport cython
from libc.stdint cimport int64_t, uint16_t, uint64_t

from headrace.sources.cassandra.native cimport constants, ops

cdef int _KIND, _WORD_BITS, _WORD, _LONG_WORDS


@cython.final
cdef class EntryColumns:
    cdef object parts_block, digests_block, content_block
    cdef uint16_t[::1] parts
    cdef uint64_t[::1] digests
    cdef unsigned char[::1] content
    cdef readonly Py_ssize_t count, digest_count, size

    cpdef clear(self)
    cpdef int part(self, int kind, int64_t length) except -1
    cpdef int put(self, const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t end) except -1
    @cython.locals(i=Py_ssize_t)
    cpdef int put_digests(self, uint64_t[::1] words, Py_ssize_t count) except -1
    @cython.locals(count=Py_ssize_t)
    cdef _grow_parts(self)
    @cython.locals(count=Py_ssize_t)
    cdef _grow_digests(self)
    @cython.locals(count=Py_ssize_t)
    cdef _grow_content(self, Py_ssize_t size)


@cython.final
cdef class ReceivedEntries:
    cdef readonly Py_ssize_t count, digest_count, size, entries, passed
    cdef readonly int64_t begin, made_bytes, passed_bytes
    cdef const uint64_t[::1] digests
    cdef const uint16_t[::1] parts
    cdef const unsigned char[::1] content
    cdef Py_ssize_t at
    cdef readonly int kind
    cdef readonly int64_t length

    @cython.locals(digests=Py_ssize_t, size=Py_ssize_t, kind=int, length=int64_t, least=int64_t)
    cdef _check(self, int64_t bytes_max)
    cpdef bint next(self) noexcept
