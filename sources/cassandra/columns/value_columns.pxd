"""C types for value_columns.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.sources.cassandra.native cimport constants, ops
from headrace.sources.cassandra.columns.arrow_columns cimport ArrowColumn

cdef int _UUID_CHARS, _NUMBER_BYTES, _ASCII_MAX, _DATE_SIGN, _WORD_BYTES, _SCALE_BYTES, _POWERS_MAX, _LENGTH_EXTRA_MAX, _PREFIX_BYTES
cdef int64_t _MS_MAX
cdef uint64_t _MASK, _HALF
cdef int _NOWHERE, _UNFIT, _ONE, _TWO, _FOUR, _EIGHT, _DAYS, _MOMENT, _BIT, _RAW, _ASCII, _UTF8, _UUID, _INET, _NUMBER, _DURATION, _ITEMS, _VECTOR, _PARTS


@cython.final
cdef class ValueColumn(ArrowColumn):
    cdef int code
    cdef bint allows_empty, has_scale
    cdef int scale
    cdef Py_ssize_t element_bytes, items
    cdef object cql_type
    cdef readonly list order
    cdef list absent
    cdef const unsigned char[::1] buf
    cdef unsigned char[::1] scratch
    cdef uint64_t[::1] powers

    @cython.locals(child=ValueColumn)
    cpdef attach(self, const unsigned char[::1] buf)
    cpdef bind(self, cql_type)
    cpdef bint takes_parts(self) noexcept
    cpdef int refuse(self) except -1
    @cython.locals(code=int, moment=int64_t)
    cpdef int value(self, Py_ssize_t start, Py_ssize_t length) except -1
    cdef int _piece(self, int code, Py_ssize_t start, Py_ssize_t length) except -1
    cdef bint _is_short(self, Py_ssize_t start, Py_ssize_t length) noexcept
    @cython.locals(end=Py_ssize_t, i=Py_ssize_t, power=uint64_t, negative=bint, number=uint64_t, first=uint64_t, middle=uint64_t, cross=uint64_t, low=uint64_t, high=uint64_t)
    cdef int _scale(self, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(bit=int)
    cdef int _rare(self, int code, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(child=ValueColumn)
    cdef int _made(self, int code, bytes raw) except -1
    @cython.locals(end=Py_ssize_t, width=Py_ssize_t, count=Py_ssize_t, at=Py_ssize_t, unfit=int, i=Py_ssize_t, child=ValueColumn, size=Py_ssize_t)
    cdef int _items(self, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(keys=ValueColumn, child=ValueColumn, begin=Py_ssize_t, i=Py_ssize_t)
    cpdef int close_map(self, int unfit) except -1
    @cython.locals(end=Py_ssize_t, at=Py_ssize_t, unfit=int, i=Py_ssize_t, child=ValueColumn, size=Py_ssize_t)
    cdef int _parts(self, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(child=ValueColumn)
    cpdef int close_fields(self) except -1
    @cython.locals(end=Py_ssize_t, at=Py_ssize_t, unfit=int, i=Py_ssize_t, child=ValueColumn, size=Py_ssize_t, first=int, extra=int)
    cdef int _vector(self, Py_ssize_t start, Py_ssize_t length) except -1
    cdef int _sized(self, Py_ssize_t length, Py_ssize_t size) except -1
    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t _prefix(self, Py_ssize_t at, Py_ssize_t end, Py_ssize_t length) except -2
    @cython.locals(seen=int, i=Py_ssize_t)
    cdef int _check_text(self, int code, Py_ssize_t start, Py_ssize_t length) except -1
    cdef int _bad(self, Py_ssize_t length) except -1


cdef int64_t _signed64(uint64_t word) noexcept
