# cython: language_level=3
cimport numpy as np

ctypedef void (*Loop)(char **, const np.npy_intp *, const np.npy_intp *, void *) noexcept nogil  # of a ufunc

cdef struct Layout:
    char kind  # of the value, as a character
    np.npy_intp value, index, index_size, size  # offsets and sizes in bytes
    bint greater


cdef class Pairs:
    cdef Layout layout
    cdef Loop loop
