"""C types for rules.py."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from headrace.sources.cassandra.native cimport constants, ops
from headrace.sources.cassandra.ring.replica_groups cimport Groups

cdef int _HOST_COUNTERS, _FIRST, _COUNTED, _SURPLUS, _REPEAT
cdef int _ASSUMED_WORDS, _ASSUMED_HOST, _ASSUMED_UNTIL, _ASSUMED_FROM, _ASSUMED_TO
cdef int _ROOM_FIRST, _AHEAD, _HOSTS_MAX
cdef uint64_t _DIRTY, _PERSISTED, _SHARED, _CHECKED, _STREAMED, _NO_REPLICA, _STORED_BITS
cdef uint64_t _GROUP_MASK, _HOST_MASK, _MASK64, _LOW32, _SIGN, _ONE, _HALF
cdef int64_t _NOT_LOOKED


@cython.final
cdef class Agreement:
    cdef Groups groups_table
    cdef public uint64_t split_time_ms
    cdef public uint64_t number
    cdef readonly int live, pending
    cdef int room, used, free, locs_used, locs_free, vacant
    cdef int64_t likely
    cdef readonly int64_t indexed
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

    cdef uint64_t[::1] scratch
    cdef readonly uint64_t touched
    cdef readonly uint64_t named0, named1
    cdef readonly int suspect
    cdef public bint streamed
    cdef uint64_t given_sum, counted_sum
    cdef uint64_t[::1] emitted
    cdef readonly int64_t[::1] hosts
    cdef readonly uint64_t[::1] assumed
    cdef readonly Py_ssize_t assumes
    cdef public int64_t forgotten_incomplete
    cdef public int64_t agreed, expired, not_replica, filtered, expired_published, reencoded, overflowed, memory_shortened


    cdef _make_table(self)
    cdef inline uint64_t _field(self, Py_ssize_t slot, int field) noexcept
    cdef inline void _set_field(self, Py_ssize_t slot, int field, uint64_t value) noexcept
    cdef inline int _kind(self, Py_ssize_t slot) noexcept
    @cython.locals(meta=uint64_t)
    cdef inline void _set_kind(self, Py_ssize_t slot, int kind) noexcept
    cdef inline int _group(self, Py_ssize_t slot) noexcept
    cdef inline uint64_t _keyspace(self, Py_ssize_t slot) noexcept
    cdef inline uint64_t _published_host(self, Py_ssize_t slot) noexcept
    cdef inline uint64_t _flags(self, Py_ssize_t slot, uint64_t flags) noexcept
    cdef inline void _add_flags(self, Py_ssize_t slot, uint64_t flags) noexcept
    cdef inline void _remove_flags(self, Py_ssize_t slot, uint64_t flags) noexcept
    cdef inline void _see(self, Py_ssize_t slot, uint64_t hosts) noexcept
    cdef inline int64_t _location(self, Py_ssize_t loc, int field) noexcept
    cdef inline void _set_location(self, Py_ssize_t loc, int field, int64_t value) noexcept
    cdef inline void _count(self, Py_ssize_t slot, int host, int fate) noexcept
    @cython.locals(bit=uint64_t, slot=int, own=int, group=int, kind=int, copies=int)
    cpdef int observe(self, int host, uint64_t d0, uint64_t d1, int keyspace, int64_t token, int64_t segment, int64_t position, int64_t length) except? -1000
    @cython.locals(other=int)
    cdef int _joined_to(self, int slot, uint64_t bit) except -1
    cdef int _other(self, int slot) noexcept
    @cython.locals(copies=int, meta=uint64_t)
    cdef int _decide(self, int slot, int host, int64_t segment, int64_t position, int64_t length) except? -1000
    cdef int _agree(self, int slot, int host, int64_t segment, int64_t position, int64_t length) except -1
    @cython.locals(group=int, seen=uint64_t)
    cdef int _met(self, int slot) noexcept
    @cython.locals(group=int, seen=uint64_t, assumed=uint64_t, place=uint64_t, at=Py_ssize_t)
    cdef int _met_assuming(self, int slot) noexcept
    cpdef assume(self, list parts)
    @cython.locals(met=int, seen=int)
    cpdef int copies(self, int slot) noexcept
    @cython.locals(slot=int)
    cpdef list due(self, list slots, uint64_t wait)
    cdef inline bint _is_pending(self, int slot, uint64_t wait) noexcept
    @cython.locals(slot=int, kind=int, is_complete=bint, kept=uint64_t, ends=uint64_t, left=uint64_t)
    cpdef uint64_t forgets_in(self, uint64_t memory, uint64_t complete) noexcept
    @cython.locals(since=uint64_t)
    cdef inline bint _outlived(self, int slot, uint64_t kept, bint is_complete) noexcept
    @cython.locals(slot=int)
    cpdef list ready(self, list slots)
    @cython.locals(copies=int)
    cpdef int publish(self, int slot, int host, int64_t segment, int64_t position, int64_t length) except -1
    cpdef expire(self, int slot)
    cpdef publish_expired(self, int slot, int host, int64_t segment, int64_t position, int64_t length)
    cpdef int64_t newest_published(self, int slot) except? -1
    cpdef learn_newest(self, int slot, int64_t timestamp)
    cpdef uint64_t number_of(self, int slot) noexcept
    @cython.locals(meta=uint64_t)
    cpdef bint is_ready(self, int slot) noexcept
    @cython.locals(meta=uint64_t)
    cdef bint _is_unchecked(self, int slot) noexcept
    cpdef bint is_streamed(self, int slot) noexcept
    cpdef leave_out(self, int slot)
    @cython.locals(other=int, kind=int)
    cpdef list joined(self, int slot)
    @cython.locals(other=int)
    cpdef list others_of_token(self, int slot)
    cpdef list published_of_token(self, int slot)
    @cython.locals(slot=int)
    cpdef list unchecked(self, list slots, uint64_t wait)
    cpdef check(self, int slot)
    cpdef know(self, int slot)
    @cython.locals(host=int, segment=int64_t, position=int64_t, length=int64_t, last=uint64_t)
    cpdef join(self, int slot, int other)
    @cython.locals(dropped=int, slot=int, kind=int)
    cpdef int forget_old(self, uint64_t memory, uint64_t complete) except -1
    @cython.locals(found=uint64_t, slot=int)
    cpdef uint64_t referenced(self) noexcept
    cpdef list oldest_pending(self, int count)
    cpdef tuple identity(self, int slot)
    @cython.locals(lowest=uint64_t, highest=uint64_t, middle=uint64_t, number=uint64_t, slot=int, dropped=int)
    cdef int _forget_oldest(self, int complete_only) except -1
    @cython.locals(kind=int)
    cdef int _may_go(self, int slot, int complete_only) noexcept
    cdef bint _complete(self, int slot) noexcept
    cdef uint64_t _expected(self, int slot) noexcept
    @cython.locals(other=int)
    cdef bint _leads_on(self, int slot) noexcept
    @cython.locals(slot=int, kind=int)
    cpdef dict unpublished(self, int host, int most)
    @cython.locals(slot=int, other=int)
    cpdef overflow(self, list slots)
    cdef void fetch_slot(self, uint64_t d0) noexcept
    @cython.locals(at=int)
    cdef inline void _fetch_head(self, uint64_t token, uint64_t keyspace) noexcept
    @cython.locals(mask=int, at=int, found=uint32_t)
    cdef int64_t fetch_record(self, uint64_t d0, uint64_t token, uint64_t keyspace) noexcept
    @cython.locals(at=int)
    cdef int _find_likely(self, uint64_t d0, uint64_t d1) noexcept
    cdef int _find(self, uint64_t d0, uint64_t d1) noexcept
    @cython.locals(mask=int, slot=int)
    cdef inline int _find_from(self, int at, uint64_t d0, uint64_t d1) noexcept
    @cython.locals(mask=int, tag=uint32_t, found=uint32_t)
    cdef inline int _search(self, uint64_t d0, int at) noexcept
    @cython.locals(slot=int, meta=uint64_t)
    cdef int _new(self, uint64_t d0, uint64_t d1, uint64_t keyspace, uint64_t group, int64_t token) except -1
    @cython.locals(mask=int, d0=uint64_t)
    cdef inline int _index(self, int slot, int at) noexcept
    cdef inline uint64_t _hash(self, uint64_t token, uint64_t keyspace) noexcept
    @cython.locals(mask=int, hashed=uint64_t, tag=uint32_t, at=int, head=uint32_t)
    cdef inline int _head_place(self, uint64_t token, uint64_t keyspace) noexcept
    @cython.locals(token=uint64_t, keyspace=uint64_t, mask=int, at=int, head=int)
    cdef inline int _link(self, int slot) except -1
    @cython.locals(keyspace=uint64_t, at=int)
    cpdef int head(self, int slot) noexcept
    cdef inline int _has_locations(self, int slot) noexcept
    cdef inline int _first_location(self, int slot) noexcept
    cdef int _free(self, int slot) except -1
    @cython.locals(keyspace=uint64_t, at=int, other=int)
    cdef int _hand_over(self, int slot) except -1
    @cython.locals(i=int, slot=int, keyspace=uint64_t)
    cdef int _reindex(self) except -1
    cdef int _note_dropped(self, uint64_t d0, uint64_t d1) except -1
    @cython.locals(dropped=uint64_t[::1])
    cdef int _grow_dropped(self) except -1
    cdef int _grow(self) except -1
    cdef int _view(self) except -1
    cdef inline int _become(self, int slot, int kind) except -1
    cdef int _become_published(self, int slot, int kind, uint64_t host, uint64_t segment, uint64_t position, uint64_t length) except -1
    cdef int _mark(self, int slot) except -1
    @cython.locals(dirty=int[::1])
    cdef int _grow_dirty(self) except -1
    @cython.locals(slot=int, keyspace=int, group=uint64_t)
    cpdef regroup(self, Groups groups)
    @cython.locals(loc=int)
    cdef int _locate(self, int slot, int host, int64_t segment, int64_t position, int64_t length) except -1
    @cython.locals(loc=int, following=int)
    cdef inline int _forget_locations(self, int slot) noexcept
    @cython.locals(loc=int, kind=int, word=uint64_t, host=uint64_t)
    cpdef list locations(self, int slot)
    cpdef changed_rows(self)
    @cython.locals(rows=uint64_t[::1], size=Py_ssize_t, at=Py_ssize_t, i=Py_ssize_t, slot=int, word=int)
    cpdef list changed_pieces(self, Py_ssize_t words_max)
    cpdef bint has_changed(self) noexcept
    @cython.locals(last=int, slot=int)
    cpdef int touch(self, int first, int parts) except -1
    @cython.locals(size=Py_ssize_t, loc=int)
    cdef Py_ssize_t _row_size(self, int slot) noexcept
    @cython.locals(count=int, end=Py_ssize_t, loc=int, i=int)
    cdef Py_ssize_t _write_row(self, Py_ssize_t at, int slot) noexcept
    @cython.locals(at=Py_ssize_t, slot=int, kind=int, misfit=Py_ssize_t)
    cpdef restore(self, const uint64_t[::1] rows, list host_map, list keyspace_map)
    @cython.locals(kind=int, signed=int64_t, keyspace=uint64_t, group=uint64_t, number=uint64_t, seen=uint64_t, field=int, i=int, loc=Py_ssize_t, host=int, old=int, d0=uint64_t, d1=uint64_t)
    cdef int _restore_row(self, const uint64_t[::1] rows, Py_ssize_t at, int slot, list host_map, list keyspace_map) except -1


cdef uint64_t _keyspace_of(uint64_t meta) noexcept
cdef uint64_t _host_of(uint64_t meta) noexcept
cdef int64_t _signed(uint64_t token) noexcept
@cython.locals(at=Py_ssize_t, count=Py_ssize_t, end=Py_ssize_t, kind=int, copies=uint64_t, copy=Py_ssize_t)
cdef Py_ssize_t _misfit(const uint64_t[::1] rows, int hosts, uint64_t keyspaces) noexcept
