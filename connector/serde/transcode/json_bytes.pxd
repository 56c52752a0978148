"""C types for json_bytes.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.connector.serde.transcode cimport octets
from headrace.connector.serde.transcode.walk cimport Piece, Walk

cdef int _ROOM, _BLANK, _QUOTE, _SLASH, _GROWTH, _FLOAT_BYTES, _SHORT


@cython.final
cdef class JsonWriter(Walk):
    cdef const unsigned char[::1] alphabet

    cpdef bytes text(self, Piece piece, bytes content)
    @cython.locals(kind=int, length=int64_t, begin=Py_ssize_t, number=int64_t)
    cdef int _json(self, Piece piece) except -1
    cdef int _word(self, bytes content) except -1
    @cython.locals(count=Py_ssize_t, i=Py_ssize_t)
    cdef int _record(self, Piece piece) except -1
    @cython.locals(is_map=bint, first=int, left=int64_t, length=int64_t, begin=Py_ssize_t)
    cdef int _several(self, Piece piece) except -1
    @cython.locals(length=int64_t, begin=Py_ssize_t)
    cdef int _octets(self, Piece piece) except -1
    @cython.locals(i=Py_ssize_t, bits=int)
    cdef int _base64(self, Py_ssize_t begin, Py_ssize_t length) except -1
    @cython.locals(magnitude=uint64_t)
    cdef int _number(self, int64_t number) except -1
    @cython.locals(i=Py_ssize_t, byte=int)
    cdef int _quoted(self, Py_ssize_t begin, Py_ssize_t end) except -1
