"""C types for transcode.py."""

cimport cython
from libc.stdint cimport int64_t

from headrace.sources.cassandra.native cimport constants, ops
from headrace.sources.cassandra.encode.avro_bytes cimport AvroBytes, ValuePlan
from headrace.sources.cassandra.agreement.intake cimport AgreedMutations
from headrace.sources.cassandra.encode.outputs cimport ChangeOutput, MessageOutput
from headrace.sources.cassandra.encode.row_reader cimport RowReader
from headrace.sources.cassandra.encode.table_plan cimport EpochPlans, TablePlan
from headrace.sources.cassandra.mutation.parser cimport Cutter
from headrace.sources.cassandra.schema.layout cimport Header

cdef int64_t _NEVER
cdef int _ENDS_FIRST, _FACTS_FIRST, _REPLACE_BYTE, _MERGE_BYTE
cdef int _INSERT, _EXPIRING_INSERT, _UPDATE, _OF_ROW, _EXPIRING_WITH_ROW, _UPDATE_MARK_BYTES, _FLAGS, _HEAD_BYTES, _BASES_BYTES


@cython.final
cdef class Transcoder:
    cdef RowReader reader
    cdef MessageOutput messages
    cdef ChangeOutput changes
    cdef int64_t[::1] facts, checksums
    cdef AvroBytes out
    cdef Py_ssize_t length, room
    cdef bytes key
    cdef bint flat, primary
    cdef Py_ssize_t clustering, cells
    cdef int64_t[::1] plain_row
    cdef int row_flags, operation, mark, mark_bytes
    cdef Py_ssize_t bases_at
    cdef object epochs
    cdef int64_t epoch
    cdef int takes_plain
    cdef Py_ssize_t made, at, last
    cdef int64_t[::1] digest, share, omitted
    cdef int[::1] starts
    cdef bint with_starts
    cdef Py_ssize_t starts_at, starts_made, columns_max
    cdef list plans
    cdef readonly unsigned char[::1] ids
    cdef Py_ssize_t id_at
    cdef int64_t[::1] ends
    cdef Py_ssize_t end_count
    cdef int range_open
    cdef object node_names
    cdef list nodes, keys, bodies, headers, tables
    cdef int index

    cpdef attach(self, const unsigned char[::1] buf)
    @cython.locals(base=Py_ssize_t)
    cpdef encode(self, AgreedMutations agreed, nodes, bint flat=*, bint primary=*, bint with_starts=*)
    @cython.locals(places=int64_t[::1], count=Py_ssize_t, number=Py_ssize_t, base=Py_ssize_t)
    cdef _facts(self, AgreedMutations agreed)
    cdef _starts(self)
    @cython.locals(words=Py_ssize_t)
    cdef _checksums(self)
    cpdef identify(self, AgreedMutations agreed)
    @cython.locals(epoch=int64_t)
    cdef int _go_on(self, AgreedMutations agreed) except -1
    @cython.locals(made=EpochPlans)
    cdef int _enter(self, AgreedMutations agreed, int64_t epoch) except -1
    @cython.locals(column=list)
    cdef int _undo(self) except -1
    @cython.locals(takes_plain=int)
    cdef _failure(self, AgreedMutations agreed)
    @cython.locals(base=Py_ssize_t, epoch=int64_t)
    cdef bint _rescued(self, AgreedMutations agreed, error) except -1
    @cython.locals(base=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, messaging=int)
    cdef int _mutation(self, AgreedMutations agreed) except -1
    @cython.locals(header=Header, plan=TablePlan)
    cdef int _plain(self, AgreedMutations agreed, Py_ssize_t start, Py_ssize_t end, int messaging) except -1
    @cython.locals(base=Py_ssize_t, out=AvroBytes, at=Py_ssize_t)
    cdef int _changes(self, AgreedMutations agreed, Py_ssize_t count) except -1
    @cython.locals(before=Py_ssize_t)
    cdef int _omit(self) except -1
    cdef inline int _divide(self, Py_ssize_t before, int index) except -1
    @cython.locals(at=Py_ssize_t)
    cdef int _begin(self, AgreedMutations agreed) except -1
    @cython.locals(base=Py_ssize_t, out=AvroBytes, at=Py_ssize_t, tail=Py_ssize_t, node=bytes)
    cdef int _close(self, AgreedMutations agreed) except -1
    cdef inline int _payload(self, TablePlan plan, Py_ssize_t row) except -1
    @cython.locals(out=AvroBytes, at=Py_ssize_t, key=bytes)
    cdef int _keep(self, TablePlan plan, int operation, int64_t timestamp) except -1
    @cython.locals(out=AvroBytes, begin=Py_ssize_t, end=Py_ssize_t, i=Py_ssize_t)
    cdef int _finish(self, Py_ssize_t tail, Py_ssize_t tail_end) except -1
    @cython.locals(plan=TablePlan, kind=int64_t, timestamp=int64_t)
    cdef Py_ssize_t _update(self, Py_ssize_t at) except -1
    @cython.locals(following=Py_ssize_t, columns=int, timestamp=int64_t, i=int)
    cdef Py_ssize_t _row(self, TablePlan plan, Py_ssize_t at) except -1
    @cython.locals(begin=Py_ssize_t, opened=Py_ssize_t, kind=int64_t, ended=Py_ssize_t, timestamp=int64_t)
    cdef Py_ssize_t _marker(self, TablePlan plan, Py_ssize_t at) except -1
    cdef int _change(self, TablePlan plan, int operation, int64_t timestamp, Py_ssize_t row, Py_ssize_t ended) except -1
    @cython.locals(changes=ChangeOutput, wanted=int)
    cdef int _hand_over(self, TablePlan plan, int operation, int64_t timestamp, Py_ssize_t row, Py_ssize_t ended) except -1
    @cython.locals(out=AvroBytes, is_row=bint, flags=int64_t, is_static=bint, ttl=int64_t, expires=int64_t, at=Py_ssize_t, shown_static=int, row_of_key=Py_ssize_t)
    cdef int _write(self, TablePlan plan, int operation, int64_t timestamp, Py_ssize_t row, Py_ssize_t ended) except -1
    @cython.locals(ends=int64_t[::1])
    cdef int _grow_ends(self) except -1
    @cython.locals(starts=cython.int[::1])
    cdef inline int _make_room(self) except -1
    @cython.locals(i=int)
    cdef bytes _fields(self, TablePlan plan)
    @cython.locals(out=AvroBytes, put=Py_ssize_t, at=Py_ssize_t, i=int, start=Py_ssize_t, value=ValuePlan)
    cdef int _payload_key(self, TablePlan plan, Py_ssize_t row) except -1
    cpdef bytes facts_of(self, Py_ssize_t count)
    cdef int64_t index_of(self, Py_ssize_t record) noexcept
    @cython.locals(base=Py_ssize_t, before=Py_ssize_t)
    cdef int _keep_facts(self, Py_ssize_t record, int64_t timestamp, int operation, int index, int64_t mutation) except -1
    @cython.locals(grown=int64_t[::1])
    cdef int _grow_facts(self) except -1
    @cython.locals(cutter=Cutter, header=Header, at=Py_ssize_t, kind=int)
    cdef Header _head(self, Py_ssize_t start, Py_ssize_t end, int messaging)
    @cython.locals(cutter=Cutter, at=Py_ssize_t)
    cdef inline int _times(self, int kind, Header header) except -1
    @cython.locals(cutter=Cutter, table=int)
    cdef inline int _up_to_columns(self, Py_ssize_t at, Py_ssize_t end, int messaging) except -1
    cdef inline Py_ssize_t _behind(self, Py_ssize_t at) noexcept
    cdef inline Py_ssize_t _put_facts(self, Py_ssize_t at, int is_static, int64_t ttl, int64_t expires, bytes fields) noexcept
    @cython.locals(out=AvroBytes, cutter=Cutter, value=ValuePlan, at=Py_ssize_t, i=int, base=Py_ssize_t, start=Py_ssize_t)
    cdef int _plain_row(self, TablePlan plan, Header header) except -1
    @cython.locals(cutter=Cutter, column=int, end=Py_ssize_t)
    cdef Py_ssize_t _plain_cells(self, TablePlan plan, Header header, Py_ssize_t at) except -2
    @cython.locals(cutter=Cutter, begin=Py_ssize_t, found=Py_ssize_t, i=int, length=Py_ssize_t)
    cdef Py_ssize_t _behind_simple(self, Header header) except -2
    @cython.locals(cutter=Cutter, length=Py_ssize_t)
    cdef Py_ssize_t _length(self, int column) except -2
    cdef inline Py_ssize_t _run(self, TablePlan plan, Header header, int column, Py_ssize_t at) except -2
    @cython.locals(cutter=Cutter, length=Py_ssize_t, value=ValuePlan)
    cdef Py_ssize_t _plain_cell(self, TablePlan plan, int column, Py_ssize_t at) except -2
    @cython.locals(out=AvroBytes, begin=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, i=int, length=Py_ssize_t, ended=Py_ssize_t, value=ValuePlan)
    cdef int _key(self, TablePlan plan) except -1
    @cython.locals(at=Py_ssize_t, i=int, length=Py_ssize_t, value=ValuePlan)
    cdef Py_ssize_t _payload_parts(self, TablePlan plan, Py_ssize_t put) except -1
    @cython.locals(out=AvroBytes, at=Py_ssize_t, column=int, cell=Py_ssize_t, start=Py_ssize_t, length=Py_ssize_t, ended=Py_ssize_t)
    cdef int _payload_cells(self, TablePlan plan) except -1
    @cython.locals(out=AvroBytes, deleted=int, cell=Py_ssize_t, count=int64_t, put=Py_ssize_t)
    cdef int _complex(self, TablePlan plan, int column, Py_ssize_t at) except -1
    cdef inline Py_ssize_t _mode(self, Py_ssize_t at, int deleted, int64_t timestamp) noexcept
    @cython.locals(flags=int64_t, removed=int, length=Py_ssize_t, value=ValuePlan)
    cdef Py_ssize_t _complex_cell(self, TablePlan plan, int column, Py_ssize_t cell, Py_ssize_t at) except -1
    @cython.locals(out=AvroBytes, deleted=int, put=Py_ssize_t, udt=ValuePlan, cell=Py_ssize_t, i=int, flags=int64_t, length=Py_ssize_t, value=ValuePlan)
    cdef int _fields_by_name(self, TablePlan plan, int column, Py_ssize_t at) except -1
    cdef inline Py_ssize_t _shown(self, Py_ssize_t cell) noexcept
    @cython.locals(at=Py_ssize_t)
    cdef inline int _position(self, Py_ssize_t cell) noexcept
    cdef int _bad_fields(self, ValuePlan udt) except -1
    @cython.locals(flags=int64_t)
    cdef inline Py_ssize_t _cell_facts(self, Py_ssize_t cell, Py_ssize_t at) noexcept
    @cython.locals(out=AvroBytes, ended=Py_ssize_t)
    cdef inline Py_ssize_t _value(self, ValuePlan value, Py_ssize_t at, Py_ssize_t start, Py_ssize_t length) except -1
    cdef inline Py_ssize_t _nullable(self, ValuePlan value, Py_ssize_t at, Py_ssize_t start, Py_ssize_t length) except -1
    cdef int _optional(self, int64_t number, int given) except -1
    cdef inline int _has_notes(self, int64_t timestamp, int64_t expires) noexcept
    @cython.locals(out=AvroBytes, count=int, i=int, column=int, at=Py_ssize_t, flags=int64_t, name=bytes, written=int64_t)
    cdef int _write_notes(self, TablePlan plan, int64_t timestamp, int64_t ttl, int64_t expires) except -1
    @cython.locals(kind=int64_t)
    cdef int _range(self, TablePlan plan, Py_ssize_t begin, Py_ssize_t ended) except -1
    @cython.locals(count=int64_t)
    cdef int _bound(self, TablePlan plan, Py_ssize_t at, bint inclusive) except -1
    @cython.locals(out=AvroBytes, i=int, value=ValuePlan)
    cdef int _bound_values(self, TablePlan plan, Py_ssize_t at, int64_t count) except -1
    cdef inline Py_ssize_t _union(self, Py_ssize_t at, int64_t number, int given) noexcept
