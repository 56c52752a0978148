"""C types for record_rows.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.sources.cassandra cimport codes
from headrace.sources.cassandra.records cimport Records

cdef int _HOST_SHIFT, _HOSTS_MAX
cdef uint64_t _DIRTY, _PERSISTED, _STREAMED, _NO_REPLICA, _STORED_BITS, _KIND_BITS, _HOST_BITS, _MASK16, _SIGN, _ONE


cdef class StoredRecords(Records):
    cdef uint64_t[::1] scratch

    cpdef changed_rows(self)
    @cython.locals(rows=uint64_t[::1], size=Py_ssize_t, at=Py_ssize_t, i=Py_ssize_t, slot=int, word=int)
    cpdef list changed_pieces(self, Py_ssize_t words_max)
    cpdef bint has_changed(self) noexcept
    @cython.locals(last=int, slot=int)
    cpdef int touch(self, int first, int parts) except -1
    @cython.locals(size=Py_ssize_t, loc=int)
    cdef Py_ssize_t _row_size(self, int slot) noexcept
    @cython.locals(base=Py_ssize_t, count=int, end=Py_ssize_t, loc=int, i=int)
    cdef Py_ssize_t _write_row(self, Py_ssize_t at, int slot) noexcept
    @cython.locals(at=Py_ssize_t, slot=int, kind=int, misfit=Py_ssize_t)
    cpdef restore(self, const uint64_t[::1] rows, list host_map, list keyspace_map)
    @cython.locals(kind=int, signed=int64_t, keyspace=uint64_t, group=uint64_t, number=uint64_t, base=Py_ssize_t, seen=uint64_t, field=int, i=int, loc=Py_ssize_t, host=int, old=int)
    cdef int _restore_row(self, const uint64_t[::1] rows, Py_ssize_t at, int slot, list host_map, list keyspace_map) except -1


cdef int64_t _signed(uint64_t token) noexcept
@cython.locals(at=Py_ssize_t, count=Py_ssize_t, end=Py_ssize_t, kind=int, copies=uint64_t, copy=Py_ssize_t)
cdef Py_ssize_t _misfit(const uint64_t[::1] rows, int hosts, uint64_t keyspaces) noexcept
