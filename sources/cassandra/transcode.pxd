"""C types for transcode.py."""

cimport cython
from libc.stdint cimport int64_t

from headrace.sources.cassandra cimport codes, native
from headrace.sources.cassandra.avro_bytes cimport AvroBytes, ValuePlan
from headrace.sources.cassandra.intake cimport Outbox
from headrace.sources.cassandra.layout cimport Header
from headrace.sources.cassandra.plain_row cimport PlainRow
from headrace.sources.cassandra.table_plan cimport EpochPlans, TablePlan

cdef int64_t _NEVER
cdef int _ENDS_FIRST, _NOWHERE


cdef class Transcoder(PlainRow):
    cdef object epochs
    cdef int64_t epoch
    cdef int takes_plain
    cdef Py_ssize_t made, at
    cdef list plans
    cdef readonly unsigned char[::1] ids
    cdef Py_ssize_t id_at
    cdef int64_t[::1] ends
    cdef Py_ssize_t end_count
    cdef int range_open
    cdef object node_names
    cdef list nodes, keys, bodies, headers, tables
    cdef int index

    @cython.locals(base=Py_ssize_t)
    cpdef encode(self, Outbox outbox, nodes)
    @cython.locals(width=Py_ssize_t)
    cdef _facts(self, Outbox outbox)
    cpdef identify(self, Outbox outbox)
    @cython.final
    @cython.locals(epoch=int64_t)
    cdef int _go_on(self, Outbox outbox) except -1
    @cython.locals(made=EpochPlans)
    cdef int _enter(self, Outbox outbox, int64_t epoch) except -1
    @cython.locals(column=list)
    cdef int _undo(self) except -1
    @cython.locals(takes_plain=int)
    cdef _judged(self, Outbox outbox)
    @cython.final
    @cython.locals(base=Py_ssize_t, epoch=int64_t)
    cdef bint _rescued(self, Outbox outbox, error) except -1
    @cython.final
    @cython.locals(base=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, messaging=int)
    cdef int _mutation(self, Outbox outbox) except -1
    @cython.final
    @cython.locals(header=Header, plan=TablePlan)
    cdef int _plain(self, Outbox outbox, Py_ssize_t start, Py_ssize_t end, int messaging) except -1
    @cython.final
    @cython.locals(base=Py_ssize_t, out=AvroBytes, at=Py_ssize_t)
    cdef int _changes(self, Outbox outbox, Py_ssize_t count) except -1
    @cython.final
    @cython.locals(base=Py_ssize_t, out=AvroBytes, at=Py_ssize_t, tail=Py_ssize_t, node=bytes)
    cdef int _close(self, Outbox outbox) except -1
    @cython.locals(out=AvroBytes, at=Py_ssize_t)
    cdef int _keep(self, TablePlan plan, int operation, int64_t timestamp) except -1
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
    cdef int _change(self, TablePlan plan, int operation, int64_t timestamp, Py_ssize_t row, Py_ssize_t ended) except -1
    @cython.locals(out=AvroBytes, is_row=bint, flags=int64_t, is_static=bint, ttl=int64_t, expires=int64_t, at=Py_ssize_t, fields=bytes)
    cdef int _write(self, TablePlan plan, int operation, int64_t timestamp, Py_ssize_t row, Py_ssize_t ended) except -1
    @cython.final
    @cython.locals(ends=int64_t[::1])
    cdef int _grow_ends(self) except -1
    @cython.final
    @cython.locals(i=int)
    cdef bytes _fields(self, TablePlan plan)
    @cython.final
    @cython.locals(out=AvroBytes, put=Py_ssize_t, at=Py_ssize_t, i=int, start=Py_ssize_t, value=ValuePlan)
    cdef int _payload_key(self, TablePlan plan, Py_ssize_t row) except -1
