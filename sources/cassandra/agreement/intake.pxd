"""C types for intake.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.sources.cassandra.native cimport constants, ops
from headrace.sources.cassandra.agreement.rules cimport Agreement
from headrace.sources.cassandra.mutation.parser cimport Cutter
from headrace.sources.cassandra.commitlog.framer cimport Framer
from headrace.sources.cassandra.schema.layout cimport Catalogue
from headrace.sources.cassandra.ring.replica_groups cimport Groups

cdef int _GROUP, _SPARE_MAX, _DATA_KEPT, _REASONS, _SYSTEM, _UNKNOWN, _NOT_SELECTED, _COUNTER, _TABLE_ID_BYTES, _HEAD_BYTES, _NAME_BASED
cdef int _LAST_BYTES, _UNKNOWN_MAX, _KNOWN, _NEW
cdef int64_t _HALF, _LOW, _FILE, _NEVER, _HIGHEST, _LOWEST


@cython.final
cdef class AgreedMutations:
    cdef readonly unsigned char[::1] data
    cdef readonly int64_t[::1] meta
    cdef readonly Py_ssize_t count, size
    cdef readonly int64_t flags
    cdef readonly uint64_t first_number, last_number
    cdef readonly int64_t first_ms, last_ms
    cdef object data_block, meta_block

    @cython.locals(at=Py_ssize_t, base=Py_ssize_t, flags=int64_t)
    cpdef Py_ssize_t add(self, Py_ssize_t length, int host, int64_t segment, int64_t position, int copies, int messaging, int64_t epoch, uint64_t d0, uint64_t d1) except -1
    @cython.locals(size=Py_ssize_t)
    cdef _grow_data(self, Py_ssize_t length)
    @cython.locals(count=Py_ssize_t)
    cdef _grow_meta(self)
    @cython.locals(found=int64_t[::1], number=Py_ssize_t, at=Py_ssize_t)
    cpdef checksum(self)
    cpdef clear(self)


@cython.final
cdef class Routes:
    cdef Catalogue catalogue
    cdef Cutter cutter
    cdef readonly int64_t epoch
    cdef int[::1] treatment, keyspace
    cdef readonly dict selected

    cpdef treat(self, int table, int treatment, int keyspace)
    cpdef int hidden(self, bytes raw) except -2


@cython.final
cdef class Intake:
    cdef readonly int hosts, splits
    cdef int[::1] rows
    cdef int64_t[::1] places
    cdef list rows_free
    cdef int[::1] book_splits
    cdef int64_t[::1] book_tokens
    cdef Routes routes
    cdef uint64_t k0, k1
    cdef unsigned char[::1] has_further
    cdef list further
    cdef list agreements, agreed
    cdef readonly list comparers
    cdef int64_t newest
    cdef readonly uint64_t sequence
    cdef readonly Py_ssize_t fullest
    cdef readonly set fresh
    cdef public int64_t now_ms
    cdef public int liveliest
    cdef int waiting
    cdef int64_t[::1] notes
    cdef uint64_t[::1] digests
    cdef list spare
    cdef readonly int64_t[::1] skipped
    cdef readonly dict unknown
    cdef readonly Py_ssize_t held
    cdef uint64_t settled
    cdef int64_t framed
    cdef unsigned char[::1] receiving
    cdef list incoming
    cdef readonly uint64_t[::1] progress
    cdef unsigned char[::1] last
    cdef Py_ssize_t last_bytes

    @cython.locals(row=Py_ssize_t)
    cdef inline Py_ssize_t _place(self, int split, int host) noexcept
    cdef inline int64_t _noted(self, Py_ssize_t i, int field) noexcept
    cdef inline void _set_noted(self, Py_ssize_t i, int field, int64_t value) noexcept
    @cython.locals(host=int)
    cpdef make_places(self, int split)
    cpdef clear_places(self, int split)
    @cython.locals(width=Py_ssize_t, size=Py_ssize_t, places=int64_t[::1])
    cdef _grow_places(self)
    @cython.locals(place=Py_ssize_t)
    cpdef assign(self, int split, int host, int log_slot)
    cpdef unassign(self, int split, int host)
    @cython.locals(place=Py_ssize_t)
    cpdef resume_at(self, int split, int host, int64_t segment, int64_t position)
    cpdef int64_t read_of(self, int split, int host) except -1
    cpdef keep_books(self, int host, int split, int64_t token)
    cpdef own(self, int split, Agreement agreement)
    cpdef read_further(self, int split, further)
    cpdef AgreedMutations take(self, int split)
    cpdef give_back(self, AgreedMutations agreed)
    @cython.locals(stop_at=int64_t, found=int, group=int, before=uint64_t, begin=int64_t)
    cpdef int run(self, Framer framer, int host, Routes routes, Py_ssize_t bytes_max, Py_ssize_t held_max, Py_ssize_t mutations_max) except -1
    cdef int _compare(self, Framer framer, uint64_t before, int64_t begin) except -1
    @cython.locals(found=int)
    cdef inline int _gather(self, Framer framer, int host, int group, int64_t room, int64_t stop_at) except -1
    cpdef bytes last_entry(self)
    cpdef again(self, Framer framer, int host, Routes routes)
    @cython.locals(at=Py_ssize_t, updates=int, table=int, treatment=int, high=uint64_t, low=uint64_t)
    cdef inline int _route(self, Framer framer, int host) except -1
    cdef inline Py_ssize_t _after_id(self, Framer framer, Py_ssize_t at) noexcept
    @cython.locals(split=int, place=Py_ssize_t)
    cdef int _skip(self, Framer framer, int host, int table, int reason) except -1
    @cython.locals(length=int64_t, token=int64_t, split=int, place=Py_ssize_t)
    cdef inline int _note(self, Framer framer, int host, int keyspace, Py_ssize_t at) except -1
    cdef inline bint _is_passed(self, Framer framer, int split, int host, Py_ssize_t place, int64_t token) except -1
    cdef bint _was_read(self, Framer framer, int split, int host, int64_t token) except -1
    cdef inline bint _has_seen(self, Py_ssize_t place, int64_t segment, int64_t position) noexcept
    @cython.locals(i=int)
    cdef inline int _add(self, Framer framer, int split, int keyspace, int64_t token, Py_ssize_t place) except -1
    @cython.locals(i=int, agreement=Agreement, token=int64_t, keyspace=int64_t, found=int64_t, start=Py_ssize_t, end=Py_ssize_t)
    cdef inline int _decide(self, Framer framer, int host) except -1
    @cython.locals(split=int, start=Py_ssize_t, end=Py_ssize_t, position=int64_t, place=Py_ssize_t, log_slot=int, agreement=Agreement, copies=int, agreed=AgreedMutations, at=Py_ssize_t)
    cdef inline int _observe(self, Framer framer, int host, int i) except -1
    @cython.locals(start=Py_ssize_t, end=Py_ssize_t, position=int64_t, slot=int, newest=int64_t, decision=int)
    cdef int _compare_content(self, Framer framer, int log_slot, int split, Agreement agreement, int i) except? -1000
    cpdef receive(self, int host, incoming)
    @cython.locals(start=Py_ssize_t, end=Py_ssize_t, before=int64_t)
    cdef int _is_streamed(self, Framer framer, int host, int i) except -1
    @cython.locals(cutter=Cutter)
    cdef int _is_newer(self, Framer framer, Py_ssize_t start, Py_ssize_t end, int64_t newest) except -1
    @cython.locals(keyspace=int)
    cdef int _pass_over(self, Framer framer, int host, Py_ssize_t at, int updates) except -1
    cpdef remember(self, bytes table_id, str place)


cdef _miscount(str message, Framer framer)
