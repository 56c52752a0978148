"""C types for intake.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.sources.cassandra cimport codes, native
from headrace.sources.cassandra.agreement cimport Agreement, Groups
from headrace.sources.cassandra.frame cimport Framer
from headrace.sources.cassandra.layout cimport Catalogue

cdef int _REASONS, _SYSTEM, _UNKNOWN, _NOT_SELECTED, _MESSAGING_60, _TABLE_ID_BYTES, _NAME_BASED
cdef int _UNKNOWN_MAX
cdef int64_t _HALF, _LOW


@cython.final
cdef class Outbox:
    cdef readonly unsigned char[::1] data
    cdef readonly int64_t[::1] meta
    cdef readonly Py_ssize_t count, size

    @cython.locals(length=Py_ssize_t, base=Py_ssize_t)
    cpdef append(self, const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t end, int host, int64_t segment, int64_t position, int copies, int messaging)
    @cython.locals(grown=cython.uchar[::1])
    cdef _grow_data(self, Py_ssize_t length)
    cdef _grow_meta(self)


@cython.final
cdef class Intake:
    cdef Catalogue catalogue
    cdef readonly int hosts, splits
    cdef uint64_t k0, k1
    cdef uint64_t[::1] digest
    cdef unsigned char[::1] owned
    cdef list agreements, outboxes
    cdef readonly uint64_t sequence
    cdef int64_t[::1] resume
    cdef readonly int64_t[::1] reads
    cdef readonly int64_t[::1] skipped
    cdef int[::1] treatment, keyspace
    cdef readonly dict unknown
    cdef readonly Py_ssize_t held
    cdef readonly uint64_t[::1] progress

    cpdef treat(self, int table, int treatment, int keyspace)
    cpdef own(self, int split, Agreement agreement)
    cpdef resume_at(self, int split, int host, int64_t segment, int64_t position)
    cpdef Outbox take(self, int split)
    @cython.locals(stop_at=int64_t, found=int)
    cpdef int run(self, Framer framer, int host, Py_ssize_t bytes_max, Py_ssize_t held_max) except -1
    @cython.locals(at=Py_ssize_t, updates=int, table=int)
    cdef int _feed(self, Framer framer, int host) except -1
    @cython.locals(length=int64_t, token=int64_t, split=int, place=int, segment=int64_t, position=int64_t, start=Py_ssize_t, end=Py_ssize_t, copies=int, agreement=Agreement, outbox=Outbox)
    cdef int _observe(self, Framer framer, int host, int keyspace, Py_ssize_t at) except? -1000
    cdef _pass_over(self, Framer framer, int host, Py_ssize_t at)
