"""C types for framer.py."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from headrace.sources.cassandra.native cimport constants, ops

cdef int _LENGTH_EXTRA_MAX, _MARKER, _SIZE_MIN, _NO_LIMIT, _UNKNOWN, _KNOWN, _FORGOTTEN, _PASSED


@cython.final
cdef class Framer:
    cdef object __weakref__
    cdef readonly Py_ssize_t window_bytes
    cdef unsigned char[::1] window
    cdef unsigned char[::1] id_bytes
    cdef readonly str place
    cdef object read_into
    cdef bint by_section
    cdef readonly int64_t segment_id
    cdef readonly int messaging
    cdef readonly int64_t resume, at, section_end, limit, durable
    cdef readonly bint at_until
    cdef int64_t base, until
    cdef uint64_t found
    cdef int64_t beside
    cdef Py_ssize_t filled
    cdef readonly Py_ssize_t start, end
    cdef Py_ssize_t behind
    cdef public bint defers
    cdef readonly bint is_gathered
    cdef object next_block
    cdef const int64_t[::1] ends
    cdef const int32_t[::1] sizes
    cdef Py_ssize_t number, count
    cdef object supply
    cdef const int64_t[::1] known_ends, known_lengths, known_starts
    cdef Py_ssize_t known, known_count
    cdef int64_t known_begin, known_until
    cdef unsigned char[::1] room, beneath, own, given
    cdef int64_t given_begin
    cdef int64_t room_bytes
    cdef const uint64_t[::1] written
    cdef readonly bint is_apart

    cpdef bytes entry(self)
    @cython.locals(first=int, extra=int, value=int64_t, i=int)
    cdef inline int64_t vint(self, Py_ssize_t at) noexcept
    cdef inline Py_ssize_t after_vint(self, Py_ssize_t at) noexcept
    cpdef allow(self, int64_t limit, int64_t until=*, int64_t indexed=*)
    @cython.locals(found=int)
    cpdef int pass_sections(self, int64_t begin) except -1
    cpdef go_on(self, error)
    cpdef int next_entry(self) except -1
    @cython.locals(found=int)
    cdef inline int _next_framed(self) except -1
    @cython.locals(size=int64_t, begin=int64_t, length=int64_t, offset=Py_ssize_t)
    cdef inline int _frame(self) except -1
    cdef inline int _pass_over(self, int64_t length) noexcept
    cdef _start(self, int64_t segment_id, int64_t header_bytes, int messaging, int64_t resume, str place)
    cpdef give(self, int64_t begin, unsigned char[::1] content)
    cpdef supply_from(self, supply)
    cpdef know(self, int64_t begin, int64_t until, const int64_t[::1] ends, const int64_t[::1] lengths, const int64_t[::1] starts, unsigned char[::1] room, int64_t room_bytes, const uint64_t[::1] written)
    @cython.locals(found=int)
    cdef inline bint _is_known(self) except -1
    cdef _ask(self, int64_t at)
    cdef inline bint _covers(self, int64_t at) noexcept
    @cython.locals(end=int64_t, begin=int64_t, start=int64_t)
    cdef inline int _find_known(self) noexcept
    @cython.locals(start=int64_t, length=int64_t)
    cdef inline int _take_known(self) except -1
    cdef inline int _leave_room(self) except -1
    @cython.locals(number=Py_ssize_t, size=int64_t)
    cdef int64_t _bytes_until(self, int64_t at) noexcept
    cpdef gather(self, const int64_t[::1] ends, const int32_t[::1] sizes, unsigned char[::1] content)
    cpdef pass_to(self, int64_t at, bint at_until)
    @cython.locals(size=int64_t)
    cdef bint passes(self, int64_t stop_at) except -1
    @cython.locals(found=int, position=int64_t)
    cdef int _next_gathered(self) except -1
    cdef inline int check(self) except -1
    @cython.locals(begin=int64_t, end=int64_t, crc=uint32_t)
    cdef inline int _check(self) except -1
    @cython.locals(offset=Py_ssize_t, left=Py_ssize_t, size=int64_t)
    cdef bint has_next(self) noexcept
    @cython.locals(at=int64_t, offset=Py_ssize_t, pointer=int64_t, stored=uint32_t, i=int)
    cdef int _next_section(self) except -1
    cdef int _finished(self, int64_t at) except -1
    cdef inline bint _is_behind(self, int64_t end) noexcept
    @cython.locals(left=int64_t, offset=Py_ssize_t, size=int64_t)
    cdef inline int64_t _entry_size(self) except -1
    cdef inline bint _have(self, int64_t at, Py_ssize_t count) except -1
    @cython.locals(keep=Py_ssize_t, room=Py_ssize_t, kept=cython.uchar[::1], wanted=Py_ssize_t, came=Py_ssize_t)
    cdef bint _fill(self, int64_t at, Py_ssize_t count) except -1
    @cython.locals(end=int64_t)
    cdef bint _turn_to_given(self, int64_t at, Py_ssize_t count) except -1
    cdef _corrupt(self, int64_t at, str found, int64_t end)


@cython.locals(k0=uint64_t, k1=uint64_t)
cpdef bytes digest(const unsigned char[::1] content, bytes key)
