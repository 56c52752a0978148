"""C types for state_reading.py."""

cimport cython
from libc.stdint cimport int64_t

from headrace.connector.rows cimport kinds
from headrace.connector.rows.byte_folding cimport ByteFold, Plan
from headrace.connector.rows.message_pack cimport Form, Packer
from headrace.connector.serde.transcode cimport octets
from headrace.connector.serde.transcode.walk cimport Piece

cdef int64_t _NEVER
cdef bytes _EMPTY, _DELETED, _COLUMNS, _LIVE, _MARK, _CELLS
cdef int _NIL, _TRUE, _BEHIND_KEY


cdef class StateReader(Packer):
    cdef ByteFold fold
    cdef Plan plan
    cdef list key_columns
    cdef int64_t[::1] places, values, expiries, afters
    cdef bytes state
    cdef readonly int64_t deleted
    cdef int64_t live_us, live_expires_s, expires_s, cell_us
    cdef int live_expires, has_expires
    cdef readonly int is_marked, has_cells, depends_on_time

    @cython.locals(clustering=list, own=list, fold=ByteFold, is_wide=bint, count=Py_ssize_t, of_row=Py_ssize_t, i=Py_ssize_t, column=Py_ssize_t)
    cpdef bytes key(self)
    @cython.locals(fold=ByteFold, newest=int64_t, noted=int64_t, i=Py_ssize_t, column=Py_ssize_t, form=Form)
    cpdef int64_t newest_us(self) except? -1
    @cython.locals(cells=Piece, part=Piece, left=int64_t)
    @cython.final
    cdef int64_t _newest_cell(self, Piece piece, int64_t newest) except? -1
    @cython.locals(count=Py_ssize_t, i=Py_ssize_t, written=int64_t)
    @cython.final
    cdef int64_t _cell_time(self, Piece cell) except? -1
    @cython.final
    cdef int _go_to(self, Py_ssize_t at) except -1
    @cython.final
    cdef int _pack_column(self, Py_ssize_t column, Form form) except -1

    @cython.locals(i=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t)
    cpdef take(self, state)
    @cython.locals(labels=list, guess=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t)
    @cython.final
    cdef int _take_columns(self) except -1
    @cython.final
    cdef int _take_live(self) except -1
    @cython.locals(is_there=int, i=Py_ssize_t, column=Py_ssize_t, at=Py_ssize_t)
    @cython.final
    cdef int show(self, list columns, int64_t after, int64_t at_s) except -1
    @cython.final
    cdef bint is_live(self, int64_t after, int64_t at_s) except -1
    @cython.locals(written=int64_t, is_dead=bint)
    @cython.final
    cdef int _lives(self, int64_t after, int64_t at_s) except -1
    @cython.final
    cdef Py_ssize_t _content(self) except -1
    @cython.locals(cells=Py_ssize_t, end=Py_ssize_t, found=int, begin=Py_ssize_t)
    @cython.final
    cdef int _any_lives(self, Py_ssize_t column, int64_t after, int64_t at_s) except -1
    @cython.locals(form=Form, after=int64_t, cells=Py_ssize_t, end=Py_ssize_t, found=list, begin=Py_ssize_t, expires_s=int64_t, at=Py_ssize_t)
    @cython.final
    cdef list _cells_of(self, Py_ssize_t column, order, int64_t at_s)
    @cython.locals(begin=Py_ssize_t, end=Py_ssize_t, lead=int, number=Py_ssize_t)
    @cython.final
    cdef object _order(self, Form form, order)
    @cython.final
    cdef bytes _slice(self, Py_ssize_t at)
