"""C types for records.py."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from headrace.sources.cassandra cimport codes, native
from headrace.sources.cassandra.groups cimport Groups

cdef int _ROOM_FIRST, _AHEAD, _HOST_SHIFT
cdef uint64_t _DIRTY, _PERSISTED, _SHARED, _KIND_BITS, _MASK16, _MASK64, _HOST_BITS, _LOW32, _SIGN
cdef int64_t _NOT_LOOKED


cdef class Records:
    cdef Groups groups_table
    cdef public uint64_t tau
    cdef public uint64_t number
    cdef readonly int live, pending
    cdef int room, used, free, locs_used, locs_free, vacant
    cdef int64_t likely, indexed
    cdef list blocks
    cdef uint64_t[::1] words
    cdef int[::1] links
    cdef uint32_t[::1] slots, heads
    cdef int64_t[::1] newest
    cdef uint64_t salt
    cdef int64_t[::1] locs
    cdef int[::1] dirty
    cdef int dirty_count
    cdef uint64_t[::1] dropped
    cdef int dropped_count

    cdef void fetch_slot(self, uint64_t d0) noexcept
    @cython.final
    @cython.locals(at=int)
    cdef inline void _fetch_head(self, uint64_t token, uint64_t keyspace) noexcept
    @cython.locals(mask=int, at=int, found=uint32_t)
    cdef int64_t fetch_record(self, uint64_t d0, uint64_t token, uint64_t keyspace) noexcept
    @cython.locals(at=int)
    cdef int _find_likely(self, uint64_t d0, uint64_t d1) noexcept
    cdef int _find(self, uint64_t d0, uint64_t d1) noexcept
    @cython.final
    @cython.locals(mask=int, slot=int, base=Py_ssize_t)
    cdef inline int _find_from(self, int at, uint64_t d0, uint64_t d1) noexcept
    @cython.final
    @cython.locals(mask=int, tag=uint32_t, found=uint32_t)
    cdef inline int _search(self, uint64_t d0, int at) noexcept
    @cython.locals(slot=int, base=Py_ssize_t)
    cdef int _new(self, uint64_t d0, uint64_t d1, uint64_t keyspace, uint64_t group, int64_t token) except -1
    @cython.final
    @cython.locals(mask=int, d0=uint64_t)
    cdef inline int _index(self, int slot, int at) noexcept
    @cython.final
    cdef inline uint64_t _hash(self, uint64_t token, uint64_t keyspace) noexcept
    @cython.final
    @cython.locals(mask=int, hashed=uint64_t, tag=uint32_t, at=int, head=uint32_t, base=Py_ssize_t)
    cdef inline int _head_place(self, uint64_t token, uint64_t keyspace) noexcept
    @cython.final
    @cython.locals(base=Py_ssize_t, other=Py_ssize_t, token=uint64_t, keyspace=uint64_t, mask=int, at=int, head=int)
    cdef inline int _link(self, int slot) except -1
    @cython.locals(base=Py_ssize_t, keyspace=uint64_t, at=int)
    cpdef int head(self, int slot) noexcept
    @cython.final
    cdef inline int _kind(self, int slot) noexcept
    @cython.final
    cdef inline int _has_locations(self, int slot) noexcept
    @cython.final
    cdef inline int _first_location(self, int slot) noexcept
    @cython.locals(base=Py_ssize_t)
    cdef int _free(self, int slot) except -1
    @cython.locals(base=Py_ssize_t, keyspace=uint64_t, at=int, other=int)
    cdef int _hand_over(self, int slot) except -1
    @cython.locals(i=int, slot=int, base=Py_ssize_t, keyspace=uint64_t)
    cdef int _reindex(self) except -1
    cdef int _note_dropped(self, uint64_t d0, uint64_t d1) except -1
    @cython.locals(dropped=uint64_t[::1])
    cdef int _grow_dropped(self) except -1
    cdef int _grow(self) except -1
    cdef int _view(self) except -1
    @cython.final
    @cython.locals(base=Py_ssize_t)
    cdef inline int _become(self, int slot, int kind) except -1
    @cython.locals(base=Py_ssize_t)
    cdef int _become_published(self, int slot, int kind, uint64_t host, uint64_t segment, uint64_t position, uint64_t length) except -1
    @cython.locals(meta=uint64_t)
    cdef int _mark(self, int slot) except -1
    @cython.locals(dirty=int[::1])
    cdef int _grow_dirty(self) except -1
    @cython.locals(slot=int, base=Py_ssize_t, keyspace=int, group=uint64_t)
    cpdef regroup(self, Groups groups)
    @cython.locals(loc=int, base=Py_ssize_t, at=Py_ssize_t)
    cdef int _locate(self, int slot, int host, int64_t segment, int64_t position, int64_t length) except -1
    @cython.final
    @cython.locals(loc=int, following=int)
    cdef inline int _forget_locations(self, int slot) noexcept
    @cython.locals(loc=int, at=Py_ssize_t, base=Py_ssize_t, kind=int, word=uint64_t, host=uint64_t)
    cpdef list locations(self, int slot)


cdef int64_t _signed(uint64_t token) noexcept
