"""C types for json_rows.py."""

cimport cython
cimport headrace.connector.rows.json_ways as json_ways
from libc.stdint cimport int64_t, uint64_t

from headrace.connector.rows.byte_folding cimport ByteFold
from headrace.connector.rows.message_pack cimport Form
from headrace.connector.rows.state_reading cimport StateReader
from headrace.connector.serde.transcode cimport octets

cdef int _ROOM, _NIL, _FALSE, _TRUE, _BLANK, _QUOTE, _SLASH
cdef bytes _HEXADECIMAL
cdef int64_t _MS_PER_DAY, _FIRST_DAY, _LAST_DAY, _DATE_ZERO


@cython.final
cdef class Member:
    cdef bytes label
    cdef int way
    cdef object written, order
    cdef list parts


@cython.final
cdef class JsonRows(StateReader):
    cdef list members
    cdef Form payload
    cdef object quoted

    @cython.locals(fold=ByteFold, i=Py_ssize_t, column=Py_ssize_t, begin=Py_ssize_t)
    cpdef bytes written(self)
    @cython.locals(is_there=int, count=Py_ssize_t, i=Py_ssize_t, column=Py_ssize_t)
    cpdef bytes image(self, list columns, int64_t after, int64_t at_s, int is_row, int is_whole)
    @cython.locals(member=Member)
    cdef int _member(self, Py_ssize_t column, Py_ssize_t number) except -1
    cdef int _word(self, bytes content) except -1
    cdef int _put_written(self, Member member) except -1
    @cython.locals(member=Member, way=int, cells=list)
    cdef int _shown(self, Py_ssize_t column, int64_t at_s) except -1
    @cython.locals(n=Py_ssize_t, i=Py_ssize_t, part=Member)
    cdef int _udt(self, Member member, list cells) except -1
    @cython.locals(way=int, i=Py_ssize_t)
    cdef int _several(self, Member member, list cells) except -1
    @cython.locals(begin=Py_ssize_t, text=bytes)
    cdef int _name(self, Member member) except -1
    @cython.locals(at=Py_ssize_t)
    cdef int _value(self, Member member) except -1
    @cython.locals(lead=int, end=Py_ssize_t)
    cdef int _plain(self, int way) except -1
    @cython.locals(i=Py_ssize_t, byte=int)
    cdef int _string(self, Py_ssize_t begin, Py_ssize_t end) except -1
    @cython.locals(content=bytes, length=Py_ssize_t, begin=Py_ssize_t, i=Py_ssize_t, byte=int)
    cdef int _blob(self) except -1
    cdef int _number(self, int64_t number) except -1
    @cython.locals(at=Py_ssize_t)
    cdef int _put_digits(self, uint64_t number, int digits) except -1
    @cython.locals(days=int64_t, left=int64_t)
    cdef int _timestamp(self, int64_t ms) except -1
    cdef int _date(self, int64_t days) except -1
    @cython.locals(shifted=int64_t, era=int64_t, day=int64_t, year=int64_t, month=int64_t)
    cdef int _day(self, int64_t days) except -1
