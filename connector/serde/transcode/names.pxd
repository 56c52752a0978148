"""C types for names.py."""

cimport cython
from libc.stdint cimport int64_t

from headrace.connector.serde.transcode cimport octets
from headrace.connector.serde.transcode.walk cimport Piece, Walk

cdef int _MUTATION_BYTES


@cython.final
cdef class NameReader(Walk):
    cdef list fields
    cdef Py_ssize_t mutation, index

    @cython.locals(begin=Py_ssize_t, number=int64_t, place=Py_ssize_t)
    cpdef bytes of(self, bytes value, Py_ssize_t start)
