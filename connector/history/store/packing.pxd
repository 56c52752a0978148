"""C types for packing.py."""

cimport cython
from libc.stdint cimport int64_t

from headrace.connector.serde.transcode cimport octets

cdef Py_ssize_t _NUMBER_BYTES

@cython.locals(size=Py_ssize_t, i=Py_ssize_t, piece=bytes)
cpdef Py_ssize_t total(list pieces, Py_ssize_t begin, Py_ssize_t end) except -1
@cython.locals(size=Py_ssize_t, at=Py_ssize_t, each=list, made=bytearray)
cpdef bytearray content_of(list hashes, list written_us, list schemas, list operations, list pieces, Py_ssize_t begin, Py_ssize_t end)
@cython.locals(i=Py_ssize_t)
cdef Py_ssize_t _put(unsigned char *out, Py_ssize_t at, list numbers, Py_ssize_t begin, Py_ssize_t end, int size) except -1
cdef Py_ssize_t _put_number(unsigned char *out, Py_ssize_t at, int64_t number, int size) except -1
@cython.locals(size=Py_ssize_t, i=Py_ssize_t, piece=bytes)
cdef Py_ssize_t _put_ends(unsigned char *out, Py_ssize_t at, list pieces, Py_ssize_t begin, Py_ssize_t end) except -1
@cython.locals(i=Py_ssize_t, piece=bytes)
cdef Py_ssize_t _put_pieces(unsigned char *out, Py_ssize_t at, list pieces, Py_ssize_t begin, Py_ssize_t end) except -1
