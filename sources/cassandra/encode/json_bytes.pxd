"""C types for json_bytes.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.sources.cassandra.native cimport constants, ops

cdef int _FIRST, _ROOM, _GROWTH, _BLANK, _QUOTE, _SLASH, _DEL, _DIGITS_MAX, _TINY, _LONG_DIGITS
cdef int _WORD_BYTES, _SIGN, _TEN, _MONTHS
cdef uint64_t _DAYS_0
cdef int64_t _DAY_FIRST, _DAY_LAST, _MS_PER_DAY, _NS_PER_DAY, _DATE_ZERO, _INT64_MIN


@cython.final
cdef class JsonType:
    cdef readonly object cql_type
    cdef readonly int code
    cdef readonly bint allows_empty


@cython.final
cdef class JsonBytes:
    cdef const unsigned char[::1] buf
    cdef const unsigned char[::1] hex
    cdef unsigned char[::1] out
    cdef public Py_ssize_t size
    cdef int64_t written
    cdef unsigned char[::1] digits
    cdef Py_ssize_t digit_count

    cpdef attach(self, const unsigned char[::1] buf)
    @cython.locals(code=int)
    cpdef int value(self, JsonType kind, Py_ssize_t start, Py_ssize_t length) except -1
    cdef int _less_usual(self, JsonType kind, int code, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(begin=Py_ssize_t)
    cpdef int member(self, JsonType kind, Py_ssize_t start, Py_ssize_t length) except -1
    cdef int _other(self, JsonType kind, Py_ssize_t start, Py_ssize_t length) except -1
    cdef int _check(self, JsonType kind, Py_ssize_t length, Py_ssize_t wanted) except -1
    cdef int _bad(self, JsonType kind, Py_ssize_t length) except -1
    cdef int64_t _integer(self, JsonType kind, Py_ssize_t start, Py_ssize_t length) except? -1
    @cython.locals(number=int64_t, i=Py_ssize_t)
    cdef int64_t _signed(self, Py_ssize_t start, Py_ssize_t length) noexcept
    @cython.locals(end=Py_ssize_t, at=Py_ssize_t, byte=cython.uchar)
    cdef int _text(self, JsonType kind, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(byte=cython.uchar)
    cdef int _escaped(self, JsonType kind, Py_ssize_t start, Py_ssize_t at, Py_ssize_t end) except -1
    cdef inline bint _is_escaped(self, int byte) noexcept
    @cython.locals(at=Py_ssize_t)
    cdef int _uuid(self, JsonType kind, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(moment=int64_t, days=int64_t, rest=uint64_t)
    cdef int _timestamp(self, JsonType kind, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(stored=int64_t, days=int64_t)
    cdef int _date(self, JsonType kind, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(since=int64_t)
    cdef int _time(self, JsonType kind, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(since=uint64_t, era=uint64_t, of_era=uint64_t, year=uint64_t, of_year=uint64_t, month=uint64_t, day=uint64_t)
    cdef int _day(self, int64_t days) except -1
    cdef int _clock(self, uint64_t seconds) except -1
    @cython.locals(size=Py_ssize_t, scale=int64_t, magnitude=int64_t, is_negative=bint, digits=int64_t, before=int64_t)
    cdef int _decimal(self, JsonType kind, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(i=Py_ssize_t)
    cdef int _move(self, Py_ssize_t scale) noexcept
    cdef int number(self, int64_t number) except -1
    @cython.locals(begin=Py_ssize_t)
    cpdef int time(self, int64_t number) except -1
    @cython.locals(digits=int)
    cdef int _width(self, uint64_t number) noexcept
    @cython.locals(at=Py_ssize_t)
    cdef int _padded(self, uint64_t number, Py_ssize_t digits) noexcept
    @cython.locals(at=Py_ssize_t, i=Py_ssize_t)
    cdef int put_hex(self, const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t end) noexcept
    cdef inline int _char(self, int char) noexcept
    cdef int constant(self, bytes content) except -1
    cdef int again(self, Py_ssize_t start, Py_ssize_t end) except -1
    cpdef bytes bytes_from(self, Py_ssize_t start)
    cdef int reserve(self, Py_ssize_t count) except -1
    @cython.locals(grown=cython.uchar[::1])
    cdef int _grow(self, Py_ssize_t count) except -1
