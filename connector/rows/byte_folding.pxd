"""C types for byte_folding.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.connector.rows cimport kinds
from headrace.connector.rows.message_pack cimport Form, Packer
from headrace.connector.serde.transcode cimport octets
from headrace.connector.serde.transcode.walk cimport Piece

cdef int64_t _NEVER
cdef bytes _EMPTY, _NOTHING, _DELETED, _COLUMNS, _RANGES, _LIVE, _CELLS
cdef int _MEMBERS_MAX, _COLUMNS_MAX, _NUMBER_BYTES, _SINGLE_BYTES, _NIL, _SINGLE, _FALSE, _TRUE

cpdef bytes single_of(bytes schema_id)
cpdef bint is_single(bytes state)
cpdef bytes schema_id_of(bytes single)



@cython.final
cdef class Plan:
    cdef readonly list pieces, columns, names, labels, note, clustering, fields, field_labels
    cdef readonly Form bound
    cdef readonly object is_less
    cdef readonly Py_ssize_t first, timestamp, operation, static, expires, updated, notes, range, row_pieces


@cython.final
cdef class ByteFold(Packer):
    cdef Plan plan
    cdef int64_t[::1] starts, written_columns, noted, order
    cdef bytearray head_owner
    cdef unsigned char *head
    cdef Py_ssize_t count, head_bytes
    cdef bytes change, state
    cdef readonly object found
    cdef readonly int64_t written_us, operation, ranges
    cdef int64_t expires_s, number
    cdef readonly int is_static
    cdef int has_expires

    @cython.locals(plan=Plan)
    cpdef read(self, bytes change)
    @cython.locals(plan=Plan, i=Py_ssize_t, piece=Piece, end=Py_ssize_t)
    cdef int _read_pieces(self, bytes change, Py_ssize_t count) except -1
    @cython.locals(made=list, i=Py_ssize_t)
    cpdef list rows(self, list changes, Py_ssize_t begin, Py_ssize_t end, list operations, list written_us)
    @cython.locals(plan=Plan, count=Py_ssize_t, i=Py_ssize_t)
    cpdef bytes document(self, bytes change)
    @cython.locals(plan=Plan, count=Py_ssize_t, wide=bint, i=Py_ssize_t, column=Py_ssize_t)
    cpdef bytes row(self)
    cdef int _begin(self, bytes change) except -1
    cdef int64_t _long_from(self, Py_ssize_t at) except? -1
    cdef int _optional(self) except -1
    @cython.locals(i=Py_ssize_t, column=Py_ssize_t, left=int64_t)
    cdef int _read_columns(self) except -1
    @cython.locals(column=Py_ssize_t, left=int64_t, piece=Piece)
    cdef int _read_notes(self) except -1
    @cython.locals(length=int64_t, start=Py_ssize_t, names=list, column=Py_ssize_t)
    cdef Py_ssize_t _column(self, Py_ssize_t guess) except -1

    @cython.locals(i=Py_ssize_t, row=Py_ssize_t, around=bytes, state=bytes)
    cpdef Py_ssize_t fold_many(self, list rows, list partitions, list changes, list operations, Py_ssize_t begin, Py_ssize_t end, list states, list befores, bytes single) except -1
    cpdef bytes alone(self, bytes state)
    cdef bytes _before(self, bytes around)
    @cython.locals(members=int64_t, seen=int)
    cpdef bytes fold(self, state)
    @cython.locals(begin=Py_ssize_t, end=Py_ssize_t, start=Py_ssize_t, deleted=int64_t)
    cdef int _fold_member(self) except -1
    @cython.locals(begin=Py_ssize_t, written=int64_t, flag=int, expires=int64_t, is_newer=bint)
    cdef int _fold_live(self) except -1
    cdef int _put_live(self) except -1
    @cython.locals(entry=bytes, head=Py_ssize_t, count=int64_t, is_there=bint, begin=Py_ssize_t)
    cdef int _fold_ranges(self, int known) except -1
    @cython.locals(begin=Py_ssize_t, entry=bytes)
    cdef bytes _range(self)
    @cython.locals(labels=list, head=Py_ssize_t, made=int64_t, guess=Py_ssize_t, copied=Py_ssize_t, column=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t, i=Py_ssize_t)
    cdef int _fold_columns(self) except -1
    @cython.locals(labels=list, begin=Py_ssize_t, end=Py_ssize_t, column=Py_ssize_t)
    cdef Py_ssize_t _state_column(self, Py_ssize_t guess) except -2
    @cython.locals(form=Form, is_null=bint)
    cdef int _fold_column(self, Py_ssize_t column, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(begin=Py_ssize_t, written=int64_t, has_expires=int, expires=int64_t, is_empty=int, start=Py_ssize_t, is_dead=bint)
    cdef int _fold_value(self, Form form, Py_ssize_t column, Py_ssize_t at, Py_ssize_t end, int is_null) except -1
    @cython.locals(known_written=int64_t, known_has=bint, known_expires=int64_t, known_dead=bint, known_later=bint, later=bint)
    cdef int _is_newer(self, Py_ssize_t at, Py_ssize_t start, int64_t written, int has_expires, int64_t expires, int is_dead) except -1
    @cython.locals(begin=Py_ssize_t, known=bytes, made=bytes)
    cdef int _is_larger(self, Py_ssize_t start) except -1
    cdef int _change_head(self) except -1
    cdef int _cell_head(self, int64_t written, int has_expires, int64_t expires) except -1

    @cython.locals(place=Py_ssize_t, known=dict, deleted=int64_t, i=Py_ssize_t, left=int64_t, head=Py_ssize_t, path=bytes, cell=bytes)
    cdef int _fold_cells(self, Form form, Py_ssize_t at) except -1
    @cython.locals(deleted=int64_t, start=Py_ssize_t, end=Py_ssize_t, path=bytes, begin=Py_ssize_t)
    cdef int64_t _known_cells(self, Py_ssize_t at, dict known) except? -1
    @cython.locals(start=Py_ssize_t, key_at=Py_ssize_t, path=bytes, value=Form, key=Form, value_at=Py_ssize_t, is_removed=int, written=int64_t, has_expires=int, expires=int64_t, end=Py_ssize_t)
    cdef int _fold_cell(self, Form form, Py_ssize_t field, dict known) except -1
    @cython.locals(cell=bytes, is_newer=int)
    cdef int _keep_newer(self, dict known, bytes path, Py_ssize_t start, int64_t written, int has_expires, int64_t expires, int is_dead) except -1
