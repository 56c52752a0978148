"""C types for places.py."""

cimport cython
from libc.stdint cimport int64_t

cdef int _PLACE, _SEAT, _READ
cdef int64_t _HIGHEST, _LOWEST


cdef class Places:
    cdef readonly int hosts, splits
    cdef int[::1] rows
    cdef int64_t[::1] places
    cdef list rows_free
    cdef int[::1] book_splits
    cdef int64_t[::1] book_tokens

    @cython.locals(host=int)
    cpdef make_places(self, int split)
    cpdef clear_places(self, int split)
    @cython.locals(width=Py_ssize_t, size=Py_ssize_t, places=int64_t[::1])
    cdef _grow_places(self)
    @cython.locals(place=Py_ssize_t)
    cpdef seat(self, int split, int host, int seat)
    cpdef unseat(self, int split, int host)
    @cython.locals(place=Py_ssize_t)
    cpdef resume_at(self, int split, int host, int64_t segment, int64_t position)
    cpdef int64_t read_of(self, int split, int host) except -1
    cpdef keep_books(self, int host, int split, int64_t token)
