"""C types for row_columns.py."""

cimport cython
from libc.stdint cimport int64_t

from headrace.sources.cassandra cimport codes, native
from headrace.sources.cassandra.cut cimport Cutter
from headrace.sources.cassandra.table_plan cimport TablePlan

cdef int _NOWHERE
cdef int64_t _NEVER, _FOREVER
cdef int _FACTS_FIRST


cdef class RowColumns:
    cdef Cutter cutter
    cdef int64_t[::1] words
    cdef int64_t[::1] where
    cdef int64_t[::1] facts
    cdef int[::1] columns
    cdef int column_count
    cdef Py_ssize_t lists, end, row_deletion
    cdef int64_t newest, newest_deletion, oldest_simple, newest_simple, special

    cpdef use(self, Cutter cutter, int columns_max)
    cpdef forget(self)
    @cython.final
    @cython.locals(kind=int64_t, column=int, timestamp=int64_t)
    cdef Py_ssize_t _gather(self, TablePlan plan, Py_ssize_t at) except -1
    @cython.final
    @cython.locals(begin=Py_ssize_t, dropped=int64_t, kept=int)
    cdef Py_ssize_t _gather_complex(self, TablePlan plan, Py_ssize_t at, int column) except -1
    cdef Py_ssize_t _range_end(self, Py_ssize_t at) except -1
    @cython.final
    cdef inline int _is_path_cell(self, Py_ssize_t at) noexcept
    @cython.final
    cdef inline int _mention(self, int column, Py_ssize_t at) noexcept
    @cython.locals(at=Py_ssize_t)
    cdef int _has_note(self, TablePlan plan, int column, int64_t timestamp, int64_t ttl, int64_t expires) except -1
    cdef int _is_empty(self, TablePlan plan, int column, Py_ssize_t at) noexcept
    cpdef bytes facts_of(self, Py_ssize_t count)
    @cython.locals(base=Py_ssize_t)
    cdef int _keep_facts(self, Py_ssize_t record, int64_t timestamp, int operation, int index, int64_t mutation) except -1
    @cython.locals(grown=int64_t[::1])
    cdef int _grow_facts(self) except -1
