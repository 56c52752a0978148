"""C types for row_reader.py."""

cimport cython
from libc.stdint cimport int64_t

from headrace.sources.cassandra.native cimport constants
from headrace.sources.cassandra.mutation.parser cimport Cutter
from headrace.sources.cassandra.encode.table_plan cimport TablePlan

cdef int64_t _NEVER, _FOREVER


@cython.final
cdef class RowReader:
    cdef Cutter cutter
    cdef int64_t[::1] words
    cdef int64_t[::1] where
    cdef const unsigned char[::1] buf
    cdef Py_ssize_t key_start, key_length
    cdef int[::1] columns
    cdef int column_count
    cdef Py_ssize_t lists, end, row_deletion
    cdef int64_t newest, newest_deletion, oldest_simple, newest_simple, special

    cpdef attach(self, const unsigned char[::1] buf)
    cpdef use(self, Cutter cutter, int columns_max)
    cpdef forget(self)
    @cython.locals(kind=int64_t, column=int, timestamp=int64_t)
    cdef Py_ssize_t read(self, TablePlan plan, Py_ssize_t at) except -1
    @cython.locals(begin=Py_ssize_t, dropped=int64_t, kept=int)
    cdef Py_ssize_t _gather_complex(self, TablePlan plan, Py_ssize_t at, int column) except -1
    cdef Py_ssize_t range_end(self, Py_ssize_t at) except -1
    cdef int is_path_cell(self, Py_ssize_t at) noexcept
    cdef inline int _mention(self, int column, Py_ssize_t at) noexcept
    @cython.locals(at=Py_ssize_t)
    cdef int has_note(self, TablePlan plan, int column, int64_t timestamp, int64_t ttl, int64_t expires) except -1
    cdef int is_empty(self, TablePlan plan, int column, Py_ssize_t at) noexcept
    @cython.locals(length=Py_ssize_t)
    cdef Py_ssize_t part_length(self, TablePlan plan, Py_ssize_t at, Py_ssize_t end) except -1
    cdef int bad_key(self, TablePlan plan) except -1
