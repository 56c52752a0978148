"""C types for plain_row.py."""

cimport cython
from libc.stdint cimport int64_t

from headrace.sources.cassandra cimport codes, native
from headrace.sources.cassandra.avro_bytes cimport AvroBytes, ValuePlan
from headrace.sources.cassandra.cut cimport Cutter
from headrace.sources.cassandra.layout cimport Header
from headrace.sources.cassandra.row_avro cimport RowAvro
from headrace.sources.cassandra.table_plan cimport TablePlan

cdef int _NOWHERE, _MESSAGING_60, _VINT_MORE, _PLAIN_ROW, _HEAD_BYTES, _BASES_BYTES


cdef class PlainRow(RowAvro):
    cdef int64_t[::1] row
    cdef int row_flags

    @cython.final
    @cython.locals(cutter=Cutter, header=Header, at=Py_ssize_t)
    cdef Header _head(self, Py_ssize_t start, Py_ssize_t end, int messaging)
    @cython.final
    @cython.locals(cutter=Cutter, table=int)
    cdef inline int _up_to_columns(self, Py_ssize_t at, Py_ssize_t end, int messaging) except -1
    @cython.final
    cdef inline Py_ssize_t _behind(self, Py_ssize_t at) noexcept

    @cython.final
    @cython.locals(out=AvroBytes, cutter=Cutter, value=ValuePlan, at=Py_ssize_t, i=int, base=Py_ssize_t, start=Py_ssize_t)
    cdef int _insert(self, TablePlan plan, Header header) except -1
    @cython.final
    @cython.locals(cutter=Cutter, column=int, end=Py_ssize_t)
    cdef Py_ssize_t _plain_cells(self, TablePlan plan, Header header, Py_ssize_t at) except -2
    @cython.final
    @cython.locals(cutter=Cutter, begin=Py_ssize_t, found=Py_ssize_t, i=int, length=Py_ssize_t)
    cdef Py_ssize_t _behind_simple(self, Header header) except -2
    @cython.final
    @cython.locals(cutter=Cutter, length=Py_ssize_t)
    cdef Py_ssize_t _length(self, int column) except -2
    @cython.final
    cdef inline Py_ssize_t _run(self, TablePlan plan, Header header, int column, Py_ssize_t at) except -2
    @cython.final
    @cython.locals(cutter=Cutter, length=Py_ssize_t, value=ValuePlan)
    cdef Py_ssize_t _plain_cell(self, TablePlan plan, int column, Py_ssize_t at) except -2
