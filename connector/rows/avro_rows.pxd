"""C types for avro_rows.py."""

cimport cython
from libc.stdint cimport int64_t

from headrace.connector.rows cimport kinds
from headrace.connector.rows.message_pack cimport Form
from headrace.connector.rows.state_reading cimport StateReader
from headrace.connector.serde.transcode cimport octets

cdef int64_t _NEVER
cdef int _NIL, _TRUE, _LONG_BYTES, _DOUBLE_BYTES
cdef bytes _NO_IMAGE


@cython.final
cdef class AvroRows(StateReader):
    cdef list names, orders
    cdef int replace
    cdef object single

    @cython.locals(made=list, i=Py_ssize_t, column=Py_ssize_t, form=Form)
    cpdef list key_parts(self, bytes values, list columns)
    @cython.locals(is_there=int, i=Py_ssize_t, part=bytes, known=Py_ssize_t)
    cpdef bytes image(self, list key, list columns, int64_t after, int64_t at_s, int is_row, int is_whole)
    @cython.locals(i=Py_ssize_t, column=Py_ssize_t, name=bytes)
    cdef int _known(self, list columns, int is_whole, Py_ssize_t known) except -1
    @cython.locals(i=Py_ssize_t, column=Py_ssize_t)
    cdef int _expiry(self, list columns, int is_whole, Py_ssize_t known) except -1
    cdef int _put_count(self, int64_t number) except -1
    @cython.locals(n=Py_ssize_t, i=Py_ssize_t)
    cdef int _by_cell(self, Form form, list cells) except -1
    @cython.locals(expires_s=int64_t)
    cdef int _cell(self, Form form, Py_ssize_t field, tuple cell) except -1
    @cython.locals(at=Py_ssize_t, form=Form)
    cdef int _value(self, Py_ssize_t column, int64_t at_s) except -1
    @cython.locals(kind=int, end=Py_ssize_t, length=Py_ssize_t)
    cdef int _from(self, Form form) except -1
    cdef int _sized(self, Py_ssize_t begin, Py_ssize_t end) except -1
    @cython.locals(i=Py_ssize_t)
    cdef int _real(self, Form form) except -1
    @cython.locals(count=Py_ssize_t, i=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t)
    cdef int _record(self, Form form) except -1
    @cython.locals(is_map=bint, count=int64_t, inner=Form, end=Py_ssize_t)
    cdef int _several(self, Form form) except -1
    @cython.locals(begin=Py_ssize_t, end=Py_ssize_t, number=Py_ssize_t, length=Py_ssize_t)
    cdef int _named(self, Form form) except -1
