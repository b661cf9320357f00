cimport numpy as np
from libc.stdint cimport uint32_t

cdef extern from "atomics.h" nogil:
    ctypedef struct counter:
        pass


ctypedef void (*Loop)(char **, const np.npy_intp *, const np.npy_intp *, void *) noexcept nogil  # of a ufunc


cdef struct Step:
    int kind  # COPY, APPLY, DIVIDE, POST or AWAIT
    int rank  # that an AWAIT waits for
    int counter
    int buffers[3]  # of the operands and the result
    np.npy_intp starts[3]
    np.npy_intp size  # in bytes


cdef class Turn:
    cdef Step *steps
    cdef int length


cdef class Program:
    cdef list turns
    cdef readonly np.npy_intp piece, nbytes
    cdef readonly int slots  # SHORT, MEDIUM or LONG
    cdef Loop combine, divide
    cdef void *combine_data
    cdef void *divide_data
    cdef np.npy_intp itemsize, real_itemsize
    cdef char divisor[32]


cdef class Slots:
    cdef object memory, idle, give_up
    cdef object interruption  # an exception of a signal handler, which is raised when the collective is complete
    cdef public bint failed  # a run ended early
    cdef readonly int rank, size
    cdef char **areas
    cdef char *scratch
    cdef uint32_t turn, left
    cdef int pauses, yields

    cdef int run(self, Program program, char *send, char *recv) except -1
    cdef int take_turn(self, Program program, Turn turn, char *send, char *recv) except -1 nogil
    cdef int wait(self, int rank, int counter_, uint32_t value) except -1 nogil
    cdef int sleep(self, int rank, int counter_, uint32_t value) except -1
