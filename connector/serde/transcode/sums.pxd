"""C types for sums.py."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

cdef uint64_t _MASK

@cython.locals(found=Py_ssize_t, largest=Py_ssize_t, size=Py_ssize_t, value=bytes)
cdef tuple _bytes_of(list values)

@cython.locals(sum_low=uint64_t, sum_high=uint64_t, carries=uint64_t, word=uint64_t, place=Py_ssize_t)
cdef tuple _total(const int64_t[:] low, const int64_t[:] high)
