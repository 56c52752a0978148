"""C types for walk.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.connector.serde.transcode cimport octets

cdef int _FIRST, _SHIFT_MAX, _SCALE_MAX, _WORD_BYTES, _LONG_BYTES, _DECIMAL_BYTES
cdef int64_t _HALF


@cython.final
cdef class Piece:
    cdef readonly int kind, becomes, same
    cdef readonly Py_ssize_t size_bytes
    cdef readonly int[::1] plan
    cdef bytes text
    cdef int[::1] label_ends
    cdef readonly list parts, labels
    cdef readonly Piece inner
    cdef readonly object call


cdef class Walk:
    cdef bytearray owner
    cdef unsigned char *out
    cdef const unsigned char *buf
    cdef Py_ssize_t size, at, end, room, space

    @cython.locals(begin=Py_ssize_t, part=Piece)
    @cython.final
    cdef int _put(self, Piece piece) except -1
    @cython.locals(made=bytes)
    @cython.final
    cdef int _called(self, Piece piece, Py_ssize_t begin) except -1
    @cython.locals(begin=Py_ssize_t)
    @cython.final
    cdef int _cast(self, Piece piece) except -1
    @cython.locals(begin=Py_ssize_t, start=Py_ssize_t, scale=int64_t, length=int64_t, negative=int, magnitude=uint64_t, byte=int, at=Py_ssize_t, i=int)
    @cython.final
    cdef int _decimal(self, Piece piece) except -1
    @cython.locals(left=int64_t)
    @cython.final
    cdef int _items(self, Piece piece) except -1
    @cython.final
    cdef int _written(self, Piece piece) except -1
    @cython.locals(field=Piece, cell=Piece, i=Py_ssize_t)
    @cython.final
    cdef int _fields(self, Piece fields) except -1
    @cython.locals(begin=Py_ssize_t, start=Py_ssize_t, count=int64_t, found=int64_t)
    @cython.final
    cdef int _cells(self, Piece piece) except -1
    @cython.locals(valued=bint, count=int64_t, left=int64_t, key=Py_ssize_t, value=Py_ssize_t, removed=Py_ssize_t, end=Py_ssize_t)
    @cython.final
    cdef int64_t _each_cell(self, Piece cell, int becomes) except -1
    @cython.final
    cdef int _written_cell(self, Piece cell, int becomes, Py_ssize_t key, Py_ssize_t value, Py_ssize_t end) except -1
    @cython.final
    cdef inline int _put_found(self, Piece piece, Py_ssize_t begin, Py_ssize_t end) except -1
    @cython.locals(end=Py_ssize_t)
    @cython.final
    cdef int _skip(self, Piece piece) except -1
    @cython.locals(end=Py_ssize_t)
    @cython.final
    cdef int _note_starts(self, Piece record, int64_t[::1] starts) except -1
    @cython.locals(count=int64_t)
    @cython.final
    cdef int64_t _block(self) except -1
    @cython.locals(coded=uint64_t, byte=uint64_t, shift=int)
    @cython.final
    cdef int64_t _long(self) except? -1
    @cython.final
    cdef int _pass(self, int64_t count) except -1
    @cython.final
    cdef int _put_long(self, int64_t number) except -1
    @cython.locals(at=Py_ssize_t)
    @cython.final
    cdef int _put_number(self, int64_t number) except -1
    @cython.final
    cdef int _byte(self, int value) except -1
    @cython.final
    cdef int _constant(self, bytes content) except -1
    @cython.final
    cdef int _copy(self, Py_ssize_t start, Py_ssize_t end) except -1
    @cython.locals(written=bytes)
    @cython.final
    cdef int _reserve(self, Py_ssize_t count) except -1
    cdef _bad(self)
