"""C types for agreement.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.sources.cassandra cimport codes, native
from headrace.sources.cassandra.groups cimport Groups
from headrace.sources.cassandra.record_rows cimport StoredRecords

cdef int _HOST_COUNTERS
cdef int64_t _NOT_LOOKED
cdef uint64_t _MASK16, _SHARED, _CHECKED, _STREAMED, _NO_REPLICA, _ONE, _HALF


@cython.final
cdef class Agreement(StoredRecords):
    cdef readonly uint64_t touched
    cdef readonly int suspect
    cdef public bint streamed
    cdef readonly int64_t[::1] hosts
    cdef readonly uint64_t[::1] assumed
    cdef readonly Py_ssize_t assumes
    cdef public int64_t forgotten_incomplete
    cdef public int64_t agreed, expired, not_replica, filtered, expired_published, expired_late, reencoded, overflowed, memory_shortened

    @cython.locals(bit=uint64_t, slot=int, base=Py_ssize_t, group=int, kind=int, copies=int)
    cpdef int observe(self, int host, uint64_t d0, uint64_t d1, int keyspace, int64_t token, int64_t segment, int64_t position, int64_t length) except? -1000
    @cython.locals(base=Py_ssize_t, other=int)
    cdef int _joined_to(self, int slot, uint64_t bit) except -1
    @cython.locals(base=Py_ssize_t)
    cdef int _other(self, int slot) noexcept
    @cython.locals(copies=int, meta=uint64_t)
    cdef int _decide(self, int slot, int host, int64_t segment, int64_t position, int64_t length) except? -1000
    cdef int _agree(self, int slot, int host, int64_t segment, int64_t position, int64_t length) except -1
    @cython.locals(base=Py_ssize_t, group=int, seen=uint64_t)
    cdef int _met(self, int slot) noexcept
    @cython.locals(base=Py_ssize_t, group=int, seen=uint64_t, assumed=uint64_t, place=uint64_t, at=Py_ssize_t)
    cdef int _met_assuming(self, int slot) noexcept
    cpdef assume(self, list parts)
    @cython.locals(met=int, seen=int)
    cpdef int copies(self, int slot) noexcept
    @cython.locals(slot=int)
    cpdef list due(self, uint64_t wait)
    @cython.locals(slot=int)
    cpdef list ready(self)
    @cython.locals(copies=int)
    cpdef int publish(self, int slot, int host, int64_t segment, int64_t position, int64_t length) except -1
    @cython.locals(base=Py_ssize_t)
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
    @cython.locals(base=Py_ssize_t, other=int, kind=int)
    cpdef list joined(self, int slot)
    @cython.locals(other=int)
    cpdef list siblings(self, int slot)
    @cython.locals(slot=int)
    cpdef list unchecked(self, uint64_t wait)
    cpdef check(self, int slot)
    cpdef know(self, int slot)
    @cython.locals(base=Py_ssize_t, to=Py_ssize_t, host=int, segment=int64_t, position=int64_t, length=int64_t)
    cpdef join(self, int slot, int other)
    @cython.locals(dropped=int, slot=int, base=Py_ssize_t, kind=int)
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
    @cython.locals(base=Py_ssize_t)
    cdef uint64_t _expected(self, int slot) noexcept
    @cython.locals(other=int)
    cdef bint _leads_on(self, int slot) noexcept
    @cython.locals(slot=int, kind=int)
    cpdef dict unpublished(self, int host, int most)
    @cython.locals(slot=int, other=int)
    cpdef overflow(self, list slots)
