"""C types for transcode.py."""

cimport cython
from libc.stdint cimport int64_t

from headrace.sources.cassandra cimport codes, native
from headrace.sources.cassandra.avro_bytes cimport AvroBytes, ValuePlan
from headrace.sources.cassandra.intake cimport Outbox
from headrace.sources.cassandra.row_columns cimport RowColumns
from headrace.sources.cassandra.table_plan cimport EpochPlans, TablePlan

cdef int64_t _NEVER
cdef int _REPLACE_BYTE, _MERGE_BYTE, _ID_BYTES, _ENDS_FIRST, _NOWHERE


cdef class Transcoder(RowColumns):
    cdef object epochs
    cdef int64_t epoch
    cdef Py_ssize_t made, at
    cdef list plans
    cdef AvroBytes out
    cdef const unsigned char[::1] buf
    cdef readonly unsigned char[::1] ids
    cdef Py_ssize_t id_at
    cdef int64_t[::1] ends
    cdef Py_ssize_t end_count
    cdef int range_open
    cdef list nodes, keys, bodies, headers, tables
    cdef bytes key
    cdef Py_ssize_t length, key_start, key_length
    cdef int index

    @cython.locals(base=Py_ssize_t)
    cpdef encode(self, Outbox outbox, nodes)
    @cython.final
    @cython.locals(epoch=int64_t)
    cdef int _go_on(self, Outbox outbox) except -1
    @cython.locals(made=EpochPlans)
    cdef int _enter(self, Outbox outbox, int64_t epoch) except -1
    @cython.locals(column=list)
    cdef int _undo(self) except -1
    @cython.final
    @cython.locals(base=Py_ssize_t, epoch=int64_t)
    cdef bint _rescued(self, Outbox outbox, error) except -1
    @cython.final
    @cython.locals(base=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, count=Py_ssize_t)
    cdef int _mutation(self, Outbox outbox) except -1
    @cython.final
    @cython.locals(base=Py_ssize_t, out=AvroBytes, at=Py_ssize_t, tail=Py_ssize_t, node=bytes)
    cdef int _changes(self, Outbox outbox, Py_ssize_t count) except -1
    @cython.final
    @cython.locals(out=AvroBytes, begin=Py_ssize_t, end=Py_ssize_t, i=Py_ssize_t)
    cdef int _finish(self, Py_ssize_t tail, Py_ssize_t tail_end) except -1
    @cython.final
    @cython.locals(plan=TablePlan, kind=int64_t, timestamp=int64_t)
    cdef Py_ssize_t _update(self, Py_ssize_t at) except -1
    @cython.final
    @cython.locals(following=Py_ssize_t, columns=int, timestamp=int64_t, i=int)
    cdef Py_ssize_t _row(self, TablePlan plan, Py_ssize_t at) except -1
    @cython.final
    @cython.locals(begin=Py_ssize_t, opened=Py_ssize_t, kind=int64_t, ended=Py_ssize_t, timestamp=int64_t)
    cdef Py_ssize_t _marker(self, TablePlan plan, Py_ssize_t at) except -1
    @cython.final
    @cython.locals(out=AvroBytes, begin=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, i=int, length=Py_ssize_t)
    cdef int _key(self, TablePlan plan) except -1
    @cython.final
    @cython.locals(length=Py_ssize_t)
    cdef Py_ssize_t _part_length(self, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.final
    cdef int _change(self, TablePlan plan, int operation, int64_t timestamp, Py_ssize_t row, Py_ssize_t ended) except -1
    @cython.locals(out=AvroBytes, is_row=bint, flags=int64_t, is_static=bint, ttl=int64_t, expires=int64_t, at=Py_ssize_t, fields=bytes, mutation=Py_ssize_t)
    cdef int _write(self, TablePlan plan, int operation, int64_t timestamp, Py_ssize_t row, Py_ssize_t ended) except -1
    @cython.final
    @cython.locals(ends=int64_t[::1])
    cdef int _grow_ends(self) except -1
    @cython.final
    @cython.locals(i=int)
    cdef bytes _fields(self, TablePlan plan)
    @cython.final
    cdef inline Py_ssize_t _union(self, Py_ssize_t at, int64_t number, int given) noexcept
    @cython.final
    @cython.locals(out=AvroBytes, at=Py_ssize_t, i=int, length=Py_ssize_t, start=Py_ssize_t)
    cdef int _payload_key(self, TablePlan plan, Py_ssize_t row) except -1
    @cython.final
    @cython.locals(out=AvroBytes, reserve=Py_ssize_t, at=Py_ssize_t, column=int, cell=Py_ssize_t, start=Py_ssize_t, length=Py_ssize_t, ended=Py_ssize_t)
    cdef int _payload_cells(self, TablePlan plan) except -1
    @cython.final
    @cython.locals(out=AvroBytes, deleted=int, begin=Py_ssize_t, count=int64_t)
    cdef int _complex(self, TablePlan plan, int column, Py_ssize_t at) except -1
    @cython.final
    @cython.locals(out=AvroBytes, flags=int64_t, removed=int, kind=int, start=Py_ssize_t, length=Py_ssize_t, path=Py_ssize_t)
    cdef int _complex_cell(self, TablePlan plan, int column, Py_ssize_t cell) except -1
    @cython.final
    cdef int _optional(self, int64_t number, int given) except -1
    @cython.final
    cdef int _notes(self, TablePlan plan, int64_t timestamp, int64_t ttl, int64_t expires) except -1
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
