"""C types for json_changes.py."""

cimport cython
from libc.stdint cimport int64_t

from headrace.sources.cassandra.native cimport constants, ops
from headrace.sources.cassandra.agreement.intake cimport AgreedMutations
from headrace.sources.cassandra.encode.json_bytes cimport JsonBytes, JsonType
from headrace.sources.cassandra.encode.outputs cimport ChangeOutput
from headrace.sources.cassandra.encode.row_reader cimport RowReader
from headrace.sources.cassandra.encode.table_plan cimport TablePlan
from headrace.sources.cassandra.encode.transcode cimport Transcoder


@cython.final
cdef class JsonTable:
    cdef readonly list openings, names, labels, types, paths, cells, fields, field_types, is_list


cdef class JsonChanges(ChangeOutput):
    cdef Transcoder transcoder
    cdef RowReader reader
    cdef JsonBytes out
    cdef object tables_of
    cdef dict by_plan
    cdef list plans
    cdef int64_t epoch
    cdef TablePlan bound
    cdef JsonTable table
    cdef list pending, nodes, keys, values, headers, tables
    cdef int undone
    cdef AgreedMutations agreed

    cpdef encode(self, AgreedMutations agreed, nodes)
    cdef int enter(self, list plans, int64_t epoch) except -1
    cdef int keep_first(self, Py_ssize_t count) except -1
    cdef int wants(self, TablePlan plan) except -1
    @cython.locals(table=JsonTable)
    cdef int _bind(self, TablePlan plan) except -1
    @cython.locals(out=JsonBytes, table=JsonTable, is_row=bint, has_columns=bint, flags=int64_t, is_static=int64_t, ttl=int64_t, expires=int64_t, begin=Py_ssize_t, end=Py_ssize_t, kind=int64_t, starts=bint, ends=bint)
    cdef int write(self, TablePlan plan, int operation, int64_t timestamp, Py_ssize_t row, Py_ssize_t ended) except -1
    @cython.locals(out=JsonBytes, meta=int64_t[::1], base=Py_ssize_t, id_at=Py_ssize_t, middle=Py_ssize_t, end=Py_ssize_t, first=Py_ssize_t, i=Py_ssize_t)
    cdef int finish(self, Py_ssize_t number, int count) except -1
    @cython.locals(out=JsonBytes, table=JsonTable, at=Py_ssize_t, length=Py_ssize_t, end=Py_ssize_t, i=int)
    cdef int _write_key(self, TablePlan plan) except -1
    @cython.locals(out=JsonBytes, table=JsonTable, at=Py_ssize_t, start=Py_ssize_t, i=int)
    cdef int _write_clustering(self, TablePlan plan, Py_ssize_t row) except -1
    @cython.locals(out=JsonBytes, table=JsonTable, count=int64_t, start=Py_ssize_t, kind=JsonType, i=int)
    cdef int _write_bound(self, TablePlan plan, Py_ssize_t at, bint inclusive) except -1
    @cython.locals(out=JsonBytes, table=JsonTable, begin=Py_ssize_t, i=int, column=int, at=Py_ssize_t, start=Py_ssize_t, kind=JsonType)
    cdef int _write_columns(self, TablePlan plan, int64_t ttl, int64_t expires) except -1
    @cython.locals(out=JsonBytes, is_live=bint)
    cdef int _write_notes(self, JsonType kind, Py_ssize_t at, int64_t ttl, int64_t expires) except -1
    cdef inline int64_t _flags(self, Py_ssize_t at) noexcept
    @cython.locals(own_ttl=int64_t, own_expires=int64_t)
    cdef bint _lives_otherwise(self, Py_ssize_t at, int64_t ttl, int64_t expires) noexcept
    @cython.locals(out=JsonBytes, table=JsonTable, replaces=int64_t, begin=Py_ssize_t, end=Py_ssize_t, live=Py_ssize_t, removed=Py_ssize_t, first=Py_ssize_t, last=Py_ssize_t, differs=bint, flags=int64_t)
    cdef int _write_complex(self, TablePlan plan, int column, Py_ssize_t at, int64_t ttl, int64_t expires) except -1
    @cython.locals(length=Py_ssize_t, path=Py_ssize_t, other=Py_ssize_t)
    cdef int _check_order(self, TablePlan plan, int column, Py_ssize_t before, Py_ssize_t at) except -1
    @cython.locals(words=int64_t[::1], field=int, own=int64_t, other=int64_t, empty=bint)
    cdef int _notes_differ(self, TablePlan plan, int column, Py_ssize_t a, Py_ssize_t b) except -1
    cdef bint _is_empty(self, JsonType kind, Py_ssize_t at) noexcept
    @cython.locals(table=JsonTable, number=int, types=list)
    cdef JsonType _kind_of(self, TablePlan plan, int column, Py_ssize_t at)
    @cython.locals(path=Py_ssize_t)
    cdef int _position(self, Py_ssize_t at) noexcept
    @cython.locals(out=JsonBytes, table=JsonTable, is_array=bint, first=bint)
    cdef int _write_live(self, TablePlan plan, int column, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(out=JsonBytes, table=JsonTable, kind=JsonType, path=Py_ssize_t, length=Py_ssize_t)
    cdef int _write_path(self, TablePlan plan, int column, Py_ssize_t at, bint as_name) except -1
    @cython.locals(kind=JsonType, start=Py_ssize_t)
    cdef int _write_cell_value(self, TablePlan plan, int column, Py_ssize_t at) except -1
    @cython.locals(out=JsonBytes, first=bint, flags=int64_t)
    cdef int _write_removed(self, TablePlan plan, int column, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(out=JsonBytes, first=bint, flags=int64_t, kind=JsonType)
    cdef int _write_cells(self, TablePlan plan, int column, Py_ssize_t at, Py_ssize_t end, int64_t ttl, int64_t expires) except -1
