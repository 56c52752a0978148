"""C types for avro_bytes.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from headrace.sources.cassandra.native cimport constants, ops

cdef int _FIRST, _INET6_BYTES
cdef int64_t _INT_MAX
cdef uint64_t _MASK


@cython.final
cdef class ValuePlan:
    cdef readonly object cql_type
    cdef readonly int code
    cdef readonly bint allows_empty
    cdef readonly list inner
    cdef readonly Py_ssize_t count, element_bytes


@cython.final
cdef class AvroBytes:
    cdef const unsigned char[::1] buf
    cdef unsigned char[::1] out
    cdef public Py_ssize_t size

    cpdef attach(self, const unsigned char[::1] buf)
    cpdef bytes bytes_from(self, Py_ssize_t start)
    cdef int optional(self, ValuePlan plan, Py_ssize_t start, Py_ssize_t length) except -1
    cdef int required(self, ValuePlan plan, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(at=Py_ssize_t)
    cdef int value(self, ValuePlan plan, Py_ssize_t start, Py_ssize_t length) except -1
    cdef int _composed(self, ValuePlan plan, int code, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(end=Py_ssize_t, at=Py_ssize_t, part=int, coded=uint64_t, value=int64_t)
    cdef int _duration(self, ValuePlan plan, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(headers=int, at=Py_ssize_t, total=uint64_t)
    cdef int _counter(self, ValuePlan plan, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(end=Py_ssize_t, at=Py_ssize_t, inner=ValuePlan, size=Py_ssize_t)
    cdef int _vector(self, ValuePlan plan, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(end=Py_ssize_t, at=Py_ssize_t, inner=ValuePlan, size=Py_ssize_t)
    cdef int _record(self, ValuePlan plan, Py_ssize_t start, Py_ssize_t length) except -1
    @cython.locals(end=Py_ssize_t, at=Py_ssize_t, inner=ValuePlan, size=Py_ssize_t, count=int64_t, i=int64_t)
    cdef int _collection(self, ValuePlan plan, Py_ssize_t start, Py_ssize_t length, int width) except -1
    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t _prefix(self, ValuePlan plan, Py_ssize_t at, Py_ssize_t end, Py_ssize_t length) except -2
    @cython.locals(first=int, extra=int, value=uint64_t, i=int)
    cdef uint64_t _vint(self, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef Py_ssize_t _after_vint(self, Py_ssize_t at) noexcept
    cdef int long(self, int64_t number) except -1
    cdef int byte(self, int value) except -1
    cdef int raw(self, const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int constant(self, bytes raw) except -1
    cpdef int text_constant(self, bytes raw) except -1
    cdef int reserve(self, Py_ssize_t count) except -1
    @cython.locals(grown=cython.uchar[::1])
    cdef int _grow(self, Py_ssize_t count) except -1


cdef int64_t _unzigzag(uint64_t coded) noexcept
cdef int64_t _signed64(uint64_t word) noexcept
