"""C types for outputs.py."""

from libc.stdint cimport int64_t

from headrace.sources.cassandra.encode.avro_bytes cimport AvroBytes
from headrace.sources.cassandra.encode.table_plan cimport TablePlan


cdef class MessageOutput:
    cdef int add_key(self, bytes key) except -1
    cdef int add_value(self, AvroBytes out, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t tail, Py_ssize_t tail_end) except -1
    cdef int keep_first(self, Py_ssize_t count) except -1


cdef class ChangeOutput:
    cdef int enter(self, list plans, int64_t epoch) except -1
    cdef int wants(self, TablePlan plan) except -1
    cdef int write(self, TablePlan plan, int operation, int64_t timestamp, Py_ssize_t row, Py_ssize_t ended) except -1
    cdef int finish(self, Py_ssize_t number, int count) except -1
    cdef int keep_first(self, Py_ssize_t count) except -1
