"""C types for reshape.py."""

cimport cython
from libc.stdint cimport int64_t

from headrace.connector.serde.transcode cimport octets
from headrace.connector.serde.transcode.walk cimport Piece, Walk

cdef int _ID_BYTES, _SPAN_HEX, _COLUMN_BYTES, _SOURCE_BYTES, _NUMBER_BYTES, _UNKNOWN
cdef int64_t _US_MAX


@cython.final
cdef class Shape:
    cdef int envelope, payload, same, same_key
    cdef Piece fields, row
    cdef int[::1] nodes, sames, stops
    cdef list columns, key, clustering, clustering_pieces, runs, operations, names, constants, marks, headers, images
    cdef int images_at, before, after
    cdef int[::1] wide
    cdef int[::1] places
    cdef int[::1] buried
    cdef int[::1] is_key
    cdef int64_t[::1] written
    cdef int[::1] sources
    cdef int[::1] digits
    cdef object range_of
    cdef bytes updated
    cdef Py_ssize_t room


@cython.final
cdef class Reshaper(Walk):
    cdef int64_t[::1] starts
    cdef int64_t[::1] begins
    cdef int64_t[::1] expires
    cdef int64_t[::1] in_image
    cdef int64_t[::1] known
    cdef int64_t[::1] named
    cdef int64_t[::1] written_us
    cdef const int[::1] given
    cdef Py_ssize_t given_at
    cdef int repeats
    cdef readonly list keys, values, headers, operations, tombstones, failed
    cdef readonly object kept
    cdef Py_ssize_t made

    @cython.locals(index=Py_ssize_t, shape=Shape, operation=int64_t, value=bytes, made=Py_ssize_t, given=tuple)
    cpdef apply(self, shapes, keys, values, headers, starts=*)
    @cython.locals(i=Py_ssize_t)
    cpdef list timestamps(self)
    @cython.locals(i=int, count=Py_ssize_t, columns=Py_ssize_t, at=Py_ssize_t, given=Py_ssize_t)
    cdef int _scan(self, Shape shape, bytes content) except -1
    @cython.locals(ended=Py_ssize_t, plan=cython.int[::1])
    cdef inline Py_ssize_t _between(self, Shape shape, Py_ssize_t at, Py_ssize_t field, Py_ssize_t until) except -1
    @cython.locals(ended=Py_ssize_t, count=Py_ssize_t, plan=cython.int[::1])
    cdef inline Py_ssize_t _payload(self, Shape shape, Py_ssize_t at, Py_ssize_t given) except -1
    @cython.locals(ended=Py_ssize_t, place=Py_ssize_t, length=Py_ssize_t)
    cdef inline Py_ssize_t _updated(self, Shape shape, Py_ssize_t at) except -1
    cdef inline Py_ssize_t _found(self, Py_ssize_t at, Py_ssize_t ended) except -1
    cdef int _widen(self, Py_ssize_t count) except -1
    cdef inline int64_t _number(self, Shape shape, int fact) except? -1
    cdef inline int64_t _number_at(self, int place) except? -1
    @cython.locals(first=int, last=int, piece=Piece)
    cdef bytes _value(self, Shape shape, bytes content)
    @cython.locals(piece=Piece)
    cdef int _columns(self, Shape shape) except -1
    @cython.locals(piece=Piece, i=int, clustering=bytes, made=bytes, end=Py_ssize_t)
    cdef bytes _key(self, Shape shape, bytes content)
    @cython.locals(made=list, fact=int, place=int, content=bytes)
    cdef tuple _facts(self, Shape shape, int64_t operation)
    @cython.locals(at=Py_ssize_t)
    cdef bytes _mutation(self, Shape shape)
    cdef bytes _text(self, int place)
    cdef bytes _trace(self, Shape shape)
    @cython.locals(operation=int64_t)
    cdef int _debezium(self, Shape shape) except -1
    @cython.locals(timestamp=int64_t, milliseconds=int64_t, at=Py_ssize_t, length=Py_ssize_t, i=Py_ssize_t)
    cdef int _head(self, Shape shape, int64_t operation) except -1
    cdef int _image(self, Shape shape, int place) except -1
    @cython.locals(begins=int64_t[::1], column=int, count=int, i=int, left=int64_t)
    cdef int _known_columns(self, Shape shape) except -1
    @cython.locals(place=int)
    cdef inline int _source(self, Shape shape, Py_ssize_t i) except -1
    @cython.locals(place=int, i=int, column=int, left=int64_t)
    cdef int _note_written(self, Shape shape) except -1
    @cython.locals(expires=int64_t, number=int64_t, notes=Py_ssize_t, i=int, part=int, column=int, left=int64_t)
    cdef int _note_expiry(self, Shape shape) except -1
    @cython.locals(begin=Py_ssize_t, count=int, i=int, column=int)
    cdef int _column(self, Shape shape, int first) except -1
    @cython.locals(at=Py_ssize_t, column=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t)
    cdef int _struct(self, Shape shape, int64_t[::1] shown, int may_expire) except -1
    cdef inline int _check_end(self, Py_ssize_t column) except -1
    @cython.locals(place=int, made=bytes)
    cdef int _bounds(self, Shape shape) except -1


@cython.locals(begin=Py_ssize_t, i=Py_ssize_t, given=tuple, before=tuple)
cpdef list runs(list headers)
