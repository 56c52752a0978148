"""C types for row_avro.py."""

cimport cython
from libc.stdint cimport int64_t

from headrace.sources.cassandra cimport codes, native
from headrace.sources.cassandra.avro_bytes cimport AvroBytes, ValuePlan
from headrace.sources.cassandra.row_columns cimport RowColumns
from headrace.sources.cassandra.table_plan cimport TablePlan

cdef int _NOWHERE, _POSITION_BYTES, _REPLACE_BYTE, _MERGE_BYTE


cdef class RowAvro(RowColumns):
    cdef AvroBytes out
    cdef const unsigned char[::1] buf
    cdef Py_ssize_t length, room, key_start, key_length
    cdef bytes key

    cpdef attach(self, const unsigned char[::1] buf)
    @cython.final
    @cython.locals(out=AvroBytes, begin=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, i=int, length=Py_ssize_t, ended=Py_ssize_t, value=ValuePlan)
    cdef int _key(self, TablePlan plan) except -1
    @cython.final
    @cython.locals(length=Py_ssize_t)
    cdef Py_ssize_t _part_length(self, TablePlan plan, Py_ssize_t at, Py_ssize_t end) except -1
    cdef int _bad_key(self, TablePlan plan) except -1
    @cython.final
    @cython.locals(at=Py_ssize_t, i=int, length=Py_ssize_t, value=ValuePlan)
    cdef Py_ssize_t _payload_parts(self, TablePlan plan, Py_ssize_t put) except -1
    @cython.final
    @cython.locals(out=AvroBytes, at=Py_ssize_t, column=int, cell=Py_ssize_t, start=Py_ssize_t, length=Py_ssize_t, ended=Py_ssize_t)
    cdef int _payload_cells(self, TablePlan plan) except -1
    @cython.final
    @cython.locals(out=AvroBytes, deleted=int, cell=Py_ssize_t, count=int64_t, put=Py_ssize_t)
    cdef int _complex(self, TablePlan plan, int column, Py_ssize_t at) except -1
    @cython.final
    cdef inline Py_ssize_t _mode(self, Py_ssize_t at, int deleted, int64_t timestamp) noexcept
    @cython.final
    @cython.locals(flags=int64_t, removed=int, length=Py_ssize_t, value=ValuePlan)
    cdef Py_ssize_t _complex_cell(self, TablePlan plan, int column, Py_ssize_t cell, Py_ssize_t at) except -1
    @cython.final
    @cython.locals(out=AvroBytes, deleted=int, put=Py_ssize_t, udt=ValuePlan, cell=Py_ssize_t, i=int, flags=int64_t, length=Py_ssize_t, value=ValuePlan)
    cdef int _fields_by_name(self, TablePlan plan, int column, Py_ssize_t at) except -1
    @cython.final
    cdef inline Py_ssize_t _shown(self, Py_ssize_t cell) noexcept
    @cython.final
    @cython.locals(at=Py_ssize_t)
    cdef inline int _position(self, Py_ssize_t cell) noexcept
    cdef int _bad_fields(self, ValuePlan udt) except -1
    @cython.final
    @cython.locals(flags=int64_t)
    cdef inline Py_ssize_t _cell_facts(self, Py_ssize_t cell, Py_ssize_t at) noexcept
    @cython.final
    @cython.locals(out=AvroBytes, ended=Py_ssize_t)
    cdef inline Py_ssize_t _value(self, ValuePlan value, Py_ssize_t at, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.final
    cdef inline Py_ssize_t _nullable(self, ValuePlan value, Py_ssize_t at, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.final
    cdef int _optional(self, int64_t number, int given) except -1
    @cython.final
    cdef inline int _has_notes(self, int64_t timestamp, int64_t expires) noexcept
    @cython.final
    @cython.locals(out=AvroBytes, count=int, i=int, column=int, at=Py_ssize_t, flags=int64_t, name=bytes, written=int64_t)
    cdef int _write_notes(self, TablePlan plan, int64_t timestamp, int64_t ttl, int64_t expires) except -1
    @cython.final
    @cython.locals(kind=int64_t)
    cdef int _range(self, TablePlan plan, Py_ssize_t begin, Py_ssize_t ended) except -1
    @cython.final
    @cython.locals(count=int64_t)
    cdef int _bound(self, TablePlan plan, Py_ssize_t at, bint inclusive) except -1
    @cython.final
    @cython.locals(out=AvroBytes, i=int, value=ValuePlan)
    cdef int _bound_values(self, TablePlan plan, Py_ssize_t at, int64_t count) except -1
    @cython.final
    cdef inline Py_ssize_t _union(self, Py_ssize_t at, int64_t number, int given) noexcept
