"""C types for sorting.py."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from headrace.sources.cassandra.commitlog.framer cimport Framer
from headrace.sources.cassandra.native cimport constants, ops

cdef int64_t _HALF, _LOW
cdef int _TABLE_ID_BYTES, _NAME_BASED


@cython.final
cdef class SortedEntries:
    cdef object ends_block, sizes_block, content_block
    cdef int64_t[::1] ends
    cdef int32_t[::1] sizes
    cdef unsigned char[::1] content
    cdef readonly Py_ssize_t count, size

    cpdef int put(self, const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t end, int64_t position) except -1
    @cython.locals(count=Py_ssize_t)
    cdef _grow_entries(self)
    @cython.locals(count=Py_ssize_t)
    cdef _grow_content(self, Py_ssize_t size)


@cython.final
cdef class EntrySorter:
    cdef readonly int splits
    cdef public int book
    cdef readonly object wanted
    cdef list by_split
    cdef readonly Py_ssize_t held
    cdef object schema_ids

    @cython.locals(found=int, framed=int64_t)
    cpdef int sort(self, Framer framer, int64_t stop_at, Py_ssize_t held_max) except -1
    @cython.locals(at=Py_ssize_t, updates=int, length=int64_t, token=int64_t, split=int)
    cdef inline int _sort(self, Framer framer) except -1
    cdef bint _is_schema(self, Framer framer, Py_ssize_t at) except -1
    cdef int _put_everywhere(self, Framer framer) except -1
    @cython.locals(entries=SortedEntries)
    cdef inline int _put(self, Framer framer, int split, Py_ssize_t end) except -1
