"""C types for stretches.py."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from headrace.sources.cassandra.agent.entry_columns cimport EntryColumns
from headrace.sources.cassandra.commitlog.framer cimport Framer
from headrace.sources.cassandra.native cimport constants, ops

cdef int _WORDS, _START, _END, _TOKEN, _TABLE, _TABLE_ID_BYTES, _CRC_BYTES, _HEAD_BYTES, _GROUP, _PLACE_NUMBERS
cdef int64_t _DIGEST_MAX


@cython.final
cdef class Asked:
    cdef uint64_t k0, k1
    cdef bint full
    cdef object treatment
    cdef Py_ssize_t range_count
    cdef int64_t[::1] ranges


@cython.final
cdef class Stretch:
    cdef readonly int64_t begin, end
    cdef readonly object room
    cdef readonly unsigned char[::1] data
    cdef int64_t[::1] entries, ranges
    cdef uint64_t[::1] ids, digests
    cdef readonly Py_ssize_t count
    cdef list tables
    cdef int table, waiting

    @cython.locals(found=int)
    cpdef int frame(self, Framer framer, int64_t until) except -1
    cpdef start(self, int64_t begin)
    @cython.locals(at=Py_ssize_t, size=int64_t, came=Py_ssize_t)
    cpdef read(self, int descriptor, int64_t until)
    cpdef leave(self, int64_t end)
    @cython.locals(entry=Py_ssize_t, end=int64_t)
    cdef inline int _add(self, Framer framer) except -1
    @cython.locals(at=Py_ssize_t, updates=int, high=uint64_t, low=uint64_t, length=int64_t, token=int64_t)
    cdef inline int _table_of(self, Framer framer, Py_ssize_t entry) except -1
    @cython.locals(number=int)
    cdef int _number_of(self, uint64_t high, uint64_t low, Framer framer, Py_ssize_t at) except -1
    @cython.locals(entries=int64_t[::1])
    cdef _grow(self)
    @cython.locals(treatments=int[::1], number=Py_ssize_t, passed=int64_t, entry=Py_ssize_t, start=int64_t, end=int64_t, first=int64_t)
    cpdef int64_t select(self, EntryColumns columns, int64_t at, int64_t until, Asked asked) except -1
    cdef _treatments(self, Asked asked)
    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cdef Py_ssize_t _first_behind(self, int64_t at) noexcept
    @cython.locals(length=int64_t, treatment=int, token=int64_t, low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cdef inline bint _is_passed(self, int[::1] treatments, Py_ssize_t entry, Asked asked) noexcept
    cdef inline int64_t _pass(self, EntryColumns columns, int64_t count) except -1
    cdef int _as_it_is(self, EntryColumns columns, int64_t begin, int64_t end) except -1
    cdef inline int _put(self, EntryColumns columns, int64_t start, int64_t end, Asked asked) except -1
    @cython.locals(count=int)
    cdef int _digest(self, EntryColumns columns, Asked asked) except -1


@cython.final
cdef class Gathering:
    cdef const uint32_t[::1] places
    cdef readonly object room, content
    cdef unsigned char[::1] out
    cdef readonly Py_ssize_t count, done, size

    @cython.locals(first=Py_ssize_t, start=int64_t, end=int64_t)
    cpdef Py_ssize_t take(self, const unsigned char[::1] data, int64_t begin) except -1
