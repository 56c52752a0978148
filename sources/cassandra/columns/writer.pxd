"""C types for writer.py."""

cimport cython
from libc.stdint cimport int64_t

from headrace.sources.cassandra.native cimport constants
from headrace.sources.cassandra.encode.avro_bytes cimport AvroBytes
from headrace.sources.cassandra.agreement.intake cimport AgreedMutations
from headrace.sources.cassandra.encode.outputs cimport ChangeOutput, MessageOutput
from headrace.sources.cassandra.encode.row_reader cimport RowReader
from headrace.sources.cassandra.encode.table_plan cimport TablePlan
from headrace.sources.cassandra.encode.transcode cimport Transcoder
from headrace.sources.cassandra.columns.value_columns cimport ValueColumn


@cython.final
cdef class TypedColumns:
    cdef readonly object target
    cdef readonly ValueColumn row, cells, unfit, bounds, cell, misfit
    cdef readonly bint has_bounds
    cdef readonly list fields, absent, names

    cpdef begin(self)
    cpdef truncate(self, Py_ssize_t count)
    cpdef bind(self, table)
    cpdef changes(self, facts, encoded)
    cpdef int note_unfit(self, Py_ssize_t column) except -1
    @cython.locals(column=ValueColumn)
    cpdef int close_row(self) except -1


cdef class MessageColumns(MessageOutput):
    cdef Transcoder transcoder
    cdef ValueColumn keys, values

    cpdef joined(self, AgreedMutations agreed, nodes, bint flat=*, bint primary=*, bint with_starts=*)
    cdef int add_key(self, bytes key) except -1
    cdef int add_value(self, AvroBytes out, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t tail, Py_ssize_t tail_end) except -1
    cdef int keep_first(self, Py_ssize_t count) except -1


cdef class ColumnWriter(ChangeOutput):
    cdef MessageColumns messages
    cdef RowReader reader
    cdef object tables_of
    cdef str name
    cdef int wanted
    cdef readonly TypedColumns typed
    cdef dict by_plan
    cdef TablePlan bound, other
    cdef list fields
    cdef ValueColumn cell_column

    cpdef columns(self, AgreedMutations agreed, nodes)
    @cython.locals(plan=TablePlan)
    cdef int enter(self, list plans, int64_t epoch) except -1
    cdef int keep_first(self, Py_ssize_t count) except -1
    cdef int wants(self, TablePlan plan) except -1
    cdef int finish(self, Py_ssize_t number, int count) except -1
    cdef int _bind(self, TablePlan plan) except -1
    @cython.locals(is_row=bint, flags=int64_t, ttl=int64_t, expires=int64_t, rich=int, column=int, field=ValueColumn, cell=Py_ssize_t, unfit=int)
    cdef int write(self, TablePlan plan, int operation, int64_t timestamp, Py_ssize_t row, Py_ssize_t ended) except -1
    @cython.locals(field=ValueColumn, at=Py_ssize_t, i=int, length=Py_ssize_t)
    cdef int _write_key(self, TablePlan plan, Py_ssize_t row) except -1
    @cython.locals(kind=int, is_set=bint, width=Py_ssize_t, count=Py_ssize_t, unfit=int, flags=int64_t, child=ValueColumn)
    cdef int _write_elements(self, TablePlan plan, ValueColumn field, int column, Py_ssize_t at) except -1
    @cython.locals(begin=Py_ssize_t, live=int, unfit=int, i=int, child=ValueColumn, found=Py_ssize_t)
    cdef int _write_fields(self, ValueColumn field, Py_ssize_t at) except -1
    @cython.locals(path=Py_ssize_t)
    cdef Py_ssize_t _field_cell(self, Py_ssize_t at, Py_ssize_t end, int number) except -2
    @cython.locals(i=int, column=int, at=Py_ssize_t, written=int64_t)
    cdef int _write_cells(self, TablePlan plan, int64_t timestamp, int64_t ttl, int64_t expires) except -1
    @cython.locals(flags=int64_t, deleted=int, written=int64_t, own_ttl=int64_t, own_expires=int64_t, path=Py_ssize_t, length=Py_ssize_t)
    cdef int _write_cell(self, int column, Py_ssize_t at, int64_t timestamp, int64_t ttl, int64_t expires) except -1
    @cython.locals(parts=list, name=ValueColumn, element=ValueColumn, written=ValueColumn, lives=ValueColumn, ends=ValueColumn, gone=ValueColumn)
    cdef int _note(self, int column, Py_ssize_t path, Py_ssize_t length, int64_t timestamp, int64_t ttl, int64_t expires, int deleted) except -1
    @cython.locals(bounds=ValueColumn, kind=int64_t, inclusive=bint)
    cdef int _write_bounds(self, TablePlan plan, Py_ssize_t begin, Py_ssize_t ended) except -1
    @cython.locals(count=int64_t, values=ValueColumn, i=int, value=ValueColumn, number=ValueColumn, flag=ValueColumn)
    cdef int _write_bound(self, TablePlan plan, ValueColumn side, Py_ssize_t at, bint inclusive) except -1
