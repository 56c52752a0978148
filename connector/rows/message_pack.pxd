"""C types for message_pack.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.connector.rows cimport kinds
from headrace.connector.serde.transcode cimport octets
from headrace.connector.serde.transcode.walk cimport Piece, Walk

cdef int _NIL, _FALSE, _TRUE


@cython.final
cdef class Form:
    cdef readonly Piece piece
    cdef readonly int kind, way, is_plain
    cdef readonly Py_ssize_t size_bytes
    cdef readonly list parts, labels, order
    cdef readonly Form inner


cdef class Packer(Walk):
    cdef const unsigned char *mem
    cdef Py_ssize_t place, limit, text_at
    cdef int is_sorted

    @cython.locals(kind=int)
    @cython.final
    cdef int _pack(self, Form form) except -1
    @cython.locals(length=int64_t, start=Py_ssize_t)
    @cython.final
    cdef int _pack_text(self, int kind) except -1
    @cython.locals(count=Py_ssize_t, i=Py_ssize_t)
    @cython.final
    cdef int _pack_record(self, Form form) except -1
    @cython.locals(starts=list, part=Form, i=Py_ssize_t, end=Py_ssize_t)
    @cython.final
    cdef int _pack_sorted(self, Form form) except -1
    @cython.locals(begin=Py_ssize_t, count=int64_t, left=int64_t, inner=Form)
    @cython.final
    cdef int _pack_items(self, Form form) except -1
    @cython.locals(number=int64_t, start=Py_ssize_t)
    @cython.final
    cdef int _pack_named(self, Form form) except -1
    @cython.locals(size=Py_ssize_t)
    @cython.final
    cdef int _label(self, bytes label) except -1
    @cython.final
    cdef int _text(self, bytes name) except -1
    @cython.final
    cdef int _binary(self, bytes content) except -1
    @cython.final
    cdef int _lead_byte(self, int lead) except -1
    @cython.final
    cdef int _head(self, int64_t count, int few, int many) except -1
    @cython.final
    cdef int _text_head(self, int64_t length, int lead) except -1
    @cython.locals(end=Py_ssize_t)
    @cython.final
    cdef int _long_head(self, Py_ssize_t at, int lead, int64_t count) except -1
    @cython.final
    cdef int _put_int(self, int64_t number) except -1
    @cython.locals(shift=int, at=Py_ssize_t)
    @cython.final
    cdef int _big(self, int lead, uint64_t number, int size) except -1
    @cython.final
    cdef int _copy_value(self, Py_ssize_t start, Py_ssize_t end) except -1
    @cython.final
    cdef int _copy_state(self, Py_ssize_t start, Py_ssize_t end) except -1

    @cython.final
    cdef int _lead(self) except -1
    @cython.final
    cdef int _ahead(self, uint64_t count) except -1
    @cython.locals(number=uint64_t, i=Py_ssize_t)
    @cython.final
    cdef uint64_t _whole(self, int size) except? 0
    @cython.locals(lead=int, size=int, top=int, number=uint64_t)
    @cython.final
    cdef int64_t _int(self) except? -1
    @cython.final
    cdef int64_t _map_size(self) except -1
    @cython.final
    cdef int64_t _array_size(self) except -1
    @cython.locals(lead=int)
    @cython.final
    cdef int64_t _size_of(self, int few, int many) except -1
    @cython.locals(lead=int, length=uint64_t)
    @cython.final
    cdef Py_ssize_t _text_end(self) except -1
    @cython.locals(lead=int, length=uint64_t, begin=Py_ssize_t)
    @cython.final
    cdef bytes _binary_read(self)
    @cython.locals(left=int64_t)
    @cython.final
    cdef int _leave(self) except -1
    @cython.locals(lead=int)
    @cython.final
    cdef int64_t _leave_one(self) except -1
    cdef _bad_state(self)
