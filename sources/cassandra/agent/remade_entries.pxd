"""C types for remade_entries.py."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from headrace.sources.cassandra.agent.digest_exchange cimport Exchange
from headrace.sources.cassandra.agent.entry_columns cimport ReceivedEntries
from headrace.sources.cassandra.commitlog.framer cimport Framer
from headrace.sources.cassandra.native cimport constants, ops

cdef int _GROUP, _FAR, _NEAR, _HEAD_BYTES, _IN_BYTES, _FILLER, _OLD_FILLER
cdef Py_ssize_t _ANSWER_BYTES_MAX, _PLACES_MAX, _FIRST_WORDS
cdef int64_t _FILLER_MAX


@cython.final
cdef class RemadeEntries:
    cdef Exchange exchange
    cdef object block
    cdef unsigned char[::1] made
    cdef readonly int64_t begin, size
    cdef Py_ssize_t count, entries, missing, came, asked
    cdef unsigned char[::1] coming
    cdef int64_t coming_begin
    cdef int64_t[::1] columns, ends, lengths, starts, placed_ends, missing_entries, missing_placed, ranges
    cdef uint64_t[::1] numbers, missing_digests, found

    @cython.locals(at=Py_ssize_t, content=Py_ssize_t, digest=Py_ssize_t, kind=int, length=Py_ssize_t, number=uint64_t, d0=uint64_t, d1=uint64_t, filler=int, fillers=Py_ssize_t)
    cpdef start(self, ReceivedEntries received, int messaging)
    cdef inline void _fetch(self, ReceivedEntries received, Py_ssize_t digest) noexcept
    @cython.locals(behind=Py_ssize_t)
    cdef _make_columns(self, Py_ssize_t count, Py_ssize_t entries, Py_ssize_t digests)
    cdef inline void _place(self, Py_ssize_t at, Py_ssize_t length, uint64_t number) noexcept
    cdef inline void _note(self, Py_ssize_t at, Py_ssize_t length, int64_t start) noexcept
    cdef inline void _miss(self, uint64_t d0, uint64_t d1) noexcept
    @cython.locals(size=int64_t)
    cdef int _pass(self, Py_ssize_t at, int64_t count, int filler) except -1
    @cython.locals(exchange=Exchange)
    cpdef supply(self, Framer framer)
    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, length=int64_t, start=int64_t, at=int64_t, place=int64_t)
    cpdef int64_t fill(self, int64_t begin, int64_t end) except -1
    @cython.locals(exchange=Exchange)
    cdef int64_t _in_room(self, int64_t start) noexcept
    @cython.locals(end=int64_t, number=Py_ssize_t)
    cpdef bint has(self, int64_t at) except -1
    @cython.locals(crc=uint32_t)
    cdef inline void _put_entry(self, Py_ssize_t at, const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t length) noexcept
    cdef inline void _put_number(self, Py_ssize_t at, uint32_t number) noexcept
    @cython.locals(first=Py_ssize_t, size=Py_ssize_t, most=Py_ssize_t, left=Py_ssize_t, length=Py_ssize_t, i=Py_ssize_t, entry=Py_ssize_t, made=uint32_t[::1])
    cpdef bytes places(self)
    @cython.locals(size=int64_t, i=Py_ssize_t)
    cdef int64_t _coming_bytes(self) noexcept
    @cython.locals(at=Py_ssize_t)
    cpdef coming_in(self, Py_ssize_t count)
    @cython.locals(came=Py_ssize_t, size=int64_t, i=Py_ssize_t, at=Py_ssize_t, count=Py_ssize_t)
    cpdef take(self)
    @cython.locals(exchange=Exchange, k0=uint64_t, k1=uint64_t, first=Py_ssize_t, i=Py_ssize_t, entry=Py_ssize_t, d0=uint64_t, d1=uint64_t, start=int64_t, length=int64_t, begin=int64_t, at=Py_ssize_t, number=uint64_t)
    cdef int _take_group(self, int count) except -1
