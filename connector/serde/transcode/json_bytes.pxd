"""C types for json_bytes.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.connector.serde.transcode cimport octets
from headrace.connector.serde.transcode.walk cimport Piece, Walk

cdef int _ROOM, _BLANK, _QUOTE, _SLASH, _GROWTH, _SEVEN_BITS


@cython.final
cdef class JsonWriter(Walk):
    @cython.locals(content=bytes)
    cpdef list texts(self, Piece piece, list contents)
    cpdef bytes text(self, Piece piece, bytes content)
    @cython.locals(kind=int, begin=Py_ssize_t, number=int64_t)
    cdef int _json(self, Piece piece) except -1
    cdef inline int _make_room(self, Py_ssize_t count) except -1
    @cython.locals(begin=Py_ssize_t)
    cdef inline int64_t _int(self) except? -1
    @cython.locals(begin=Py_ssize_t, end=Py_ssize_t)
    cdef inline int64_t _wide(self) except? -1
    @cython.locals(begin=Py_ssize_t)
    cdef inline Py_ssize_t _past(self, int64_t count) except -1
    cdef inline int _put_one(self, int value) noexcept
    cdef int _word(self, bytes content) except -1
    @cython.locals(count=Py_ssize_t, i=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t)
    cdef int _record(self, Piece piece) except -1
    @cython.locals(is_map=bint, first=int, left=int64_t, begin=Py_ssize_t)
    cdef int _several(self, Piece piece) except -1
    @cython.locals(length=int64_t, begin=Py_ssize_t)
    cdef int _octets(self, Piece piece) except -1
    @cython.locals(i=Py_ssize_t, byte=int)
    cdef int _quoted(self, Py_ssize_t begin, Py_ssize_t end) except -1


cdef bytes _real(double number)
