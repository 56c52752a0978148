"""C types for sorting.py."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t

from headrace.sources.cassandra.commitlog.framer cimport Framer
from headrace.sources.cassandra.framed.sharing cimport Shares
from headrace.sources.cassandra.native cimport constants, ops

cdef int64_t _HALF, _LOW
cdef int _TABLE_ID_BYTES, _NAME_BASED, _GROUP, _DIGEST_BYTES


@cython.final
cdef class SortedEntries:
    cdef object ends_block, sizes_block, shares_block, content_block
    cdef int64_t[::1] ends, ranges
    cdef int32_t[::1] sizes, shares
    cdef unsigned char[::1] content, kinds
    cdef uint64_t[::1] found, group
    cdef readonly Py_ssize_t count, size, shared, digests, both

    cpdef int put(self, const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t end, int64_t position, int share) except -1
    cpdef share(self, Shares shares, uint64_t k0, uint64_t k1)
    @cython.locals(at=int64_t, waiting=int, number=Py_ssize_t, size=int64_t)
    cdef int _digest(self, uint64_t k0, uint64_t k1) except -1
    @cython.locals(word=Py_ssize_t)
    cdef int _take_digests(self, int count, uint64_t k0, uint64_t k1) except -1
    @cython.locals(at=Py_ssize_t, kept=Py_ssize_t, digest=Py_ssize_t, number=Py_ssize_t, size=Py_ssize_t, share=int, kind=int)
    cdef int _drop(self, Shares shares) except -1
    @cython.locals(count=Py_ssize_t)
    cdef _grow_entries(self)
    @cython.locals(count=Py_ssize_t)
    cdef _grow_content(self, Py_ssize_t size)


@cython.final
cdef class EntrySorter:
    cdef readonly int splits
    cdef readonly int book
    cdef readonly object wanted
    cdef list by_split
    cdef readonly Py_ssize_t held
    cdef object schema_ids
    cdef Shares shares
    cdef uint64_t k0, k1

    cpdef begin(self, int book, Shares shares, bytes key)
    @cython.locals(found=int, framed=int64_t)
    cpdef int sort(self, Framer framer, int64_t stop_at, Py_ssize_t held_max) except -1
    @cython.locals(at=Py_ssize_t, updates=int, length=int64_t, token=int64_t, split=int, high=uint64_t, low=uint64_t)
    cdef inline int _sort(self, Framer framer) except -1
    cdef bint _is_schema(self, Framer framer, Py_ssize_t at) except -1
    cdef int _put_everywhere(self, Framer framer) except -1
    @cython.locals(entries=SortedEntries)
    cdef inline int _put(self, Framer framer, int split, Py_ssize_t end, int share) except -1
    cpdef SortedEntries of(self, int split)
    cpdef SortedEntries sent(self, int split)
