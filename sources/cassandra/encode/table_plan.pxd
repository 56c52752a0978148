"""C types for table_plan.py."""

cimport cython
from libc.stdint cimport int64_t

from headrace.sources.cassandra.mutation.parser cimport Cutter

cdef int64_t _NEVER, _FOREVER


@cython.final
cdef class TablePlan:
    cdef str table_name
    cdef object headers
    cdef int delivered
    cdef list names
    cdef readonly int payload_count, key_count, first_cell
    cdef bytes constant
    cdef list values, paths, cells
    cdef int[::1] codes
    cdef int[::1] empties
    cdef int[::1] complex
    cdef int[::1] kind
    cdef int[::1] forms
    cdef int64_t[::1] dropped
    cdef int[::1] fields_of
    cdef bytes fields
    cdef int fields_count
    cdef Py_ssize_t fixed_bytes

    cdef int is_plain

    cdef _prepare(self, table, headers)
    cpdef keep_fields(self, list columns)
    cpdef bytes fields_avro(self, list columns)


@cython.final
cdef class EpochPlans:
    cdef Cutter cutter
    cdef list plans
    cdef int columns_max
