"""C types for edit.py."""

cimport cython
from libc.stdint cimport int64_t

from headrace.connector.serde.transcode cimport octets
from headrace.connector.serde.transcode.walk cimport Piece, Walk

cdef int _TIME_BYTES


@cython.final
cdef class Edit:
    cdef readonly int action
    cdef readonly Piece piece
    cdef readonly list parts
    cdef readonly bytes content
    cdef readonly bint adds_time
    cdef readonly Py_ssize_t room


@cython.final
cdef class Editor(Walk):
    @cython.locals(i=Py_ssize_t, edit=Edit, key=bytes, value=bytes)
    cpdef apply(self, edits, keys, values, headers, timestamps)
    cdef bytes _edited(self, Edit edit, bytes content, int64_t timestamp)
    @cython.locals(begin=Py_ssize_t, part=Edit)
    cdef int _edit(self, Edit edit, int64_t timestamp) except -1
