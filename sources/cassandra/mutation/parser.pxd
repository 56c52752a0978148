"""C types for parser.py."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from headrace.sources.cassandra.native cimport constants, ops
from headrace.sources.cassandra.schema.layout cimport Catalogue, Header, TableLayout

cdef int OPS_MAX, _OPS_FIRST, _OPS_KEPT, _BITMAP_MAX, _BATCH, _NULL
cdef uint64_t _MASK, _LOW
cdef int64_t _EPOCH_US, _EPOCH_S, _LIVE, _FOREVER


@cython.final
cdef class Cutter:
    cdef Catalogue catalogue
    cdef TableLayout layout
    cdef const unsigned char[::1] buf
    cdef int64_t[::1] words
    cdef unsigned char[::1] present
    cdef readonly Py_ssize_t count, at
    cdef readonly int64_t oldest, newest
    cdef Py_ssize_t room, start, end, lists
    cdef int messaging
    cdef uint64_t min_ldt, min_ttl
    cdef int64_t min_timestamp, row_timestamp, row_ttl, row_ldt, deleted_us, deleted_s

    cpdef Py_ssize_t cut(self, const unsigned char[::1] buf, Py_ssize_t start, Py_ssize_t end, int messaging) except -1
    cdef int attach(self, const unsigned char[::1] buf) except -1
    @cython.locals(i=Py_ssize_t, at=Py_ssize_t, kind=int64_t, flags=int64_t)
    cpdef span(self)
    cdef inline int begin(self, Py_ssize_t start, Py_ssize_t end, int messaging) except -1
    @cython.locals(updates=uint64_t)
    cdef Py_ssize_t cut_range(self, Py_ssize_t start, Py_ssize_t end, int messaging) except -1

    @cython.locals(length=Py_ssize_t)
    cpdef bint is_neighbour(self) except -1
    @cython.locals(length=Py_ssize_t, base=Py_ssize_t, flags=int)
    cdef int _update(self) except -1
    @cython.locals(index=int)
    cdef inline int _table(self) except -1
    cdef inline int _minima(self) except -1
    cdef inline int time_base(self) except -1
    cdef int ttl_bases(self) except -1
    @cython.locals(statics=Header, regulars=Header, row_flags=int)
    cdef int _content(self, int flags) except -1
    @cython.locals(header=Header)
    cdef Header header(self)
    @cython.locals(begin=Py_ssize_t, count=Py_ssize_t, length=Py_ssize_t)
    cdef Header _new_header(self)
    @cython.locals(extended=int, base=Py_ssize_t, missing=uint64_t)
    cdef int _row(self, int flags, Header header, int static) except -1
    @cython.locals(i=int, column=int)
    cdef int _cells(self, Header header, uint64_t missing, int has_deletions) except -1
    @cython.locals(encoded=uint64_t, left=int, listed=int, index=uint64_t)
    cdef uint64_t _subset(self, int count) except? 0xFFFFFFFFFFFFFFFE
    cdef int is_deleted(self) except -1
    @cython.locals(base=Py_ssize_t, cells=uint64_t)
    cdef int _complex(self, int column, int has_deletion) except -1
    @cython.locals(base=Py_ssize_t, start=Py_ssize_t, length=Py_ssize_t)
    cdef inline int _plain_cell(self, int column, Py_ssize_t fixed) except -1
    @cython.locals(flags=int, base=Py_ssize_t, length=Py_ssize_t)
    cdef int _cell(self, int column, Py_ssize_t fixed, bint with_path) except -1
    @cython.locals(header=uint64_t, i=int, place=int, column=int, base=Py_ssize_t, length=Py_ssize_t)
    cdef int clustering(self, int count) except -1
    cdef int row_times(self, int flags) except -1
    @cython.locals(kind=int, count=int, base=Py_ssize_t)
    cdef int _marker(self) except -1
    @cython.locals(base=Py_ssize_t)
    cdef int _deletion(self, int kind) except -1

    @cython.locals(value=uint64_t)
    cdef inline int64_t timestamp(self) except? -2
    cdef inline int64_t _ldt(self) except? -2
    cdef inline int64_t _ttl(self) except? -2
    cdef inline int u8(self) except -1
    @cython.locals(first=int, extra=int, value=uint64_t, at=Py_ssize_t)
    cdef inline uint64_t uvint(self) except? 0xFFFFFFFFFFFFFFFE
    @cython.locals(length=uint64_t)
    cdef inline Py_ssize_t length(self) except -1
    cdef inline int _need(self, uint64_t count) except -1
    @cython.locals(base=Py_ssize_t)
    cdef inline Py_ssize_t _op(self, int kind, int column) except -1
    @cython.locals(grown=int64_t[::1])
    cdef int _grow(self) except -1
    cdef int _begin_list(self) except -1
    cdef fail(self, str found)
