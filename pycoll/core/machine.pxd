cimport numpy as np
from libc.stdint cimport uint32_t

from .pairs cimport Loop, Pairs

cdef extern from "atomics.h" nogil:
    ctypedef struct counter:
        pass


cdef enum:
    COPY, APPLY, DIVIDE, POST, AWAIT, START, WAIT, FIND, SKIP  # kinds of steps
cdef enum:
    SEND, RECV, SCRATCH, PEERS  # buffers; PEERS is the slot of rank 0, PEERS + 1 its result, PEERS + 2 the slot of rank 1

cdef enum:
    READY, DONE, LEFT  # counters
cdef enum:
    SHORT, MEDIUM, LONG  # kinds of slots

cdef enum:
    NAP = 50000  # nanoseconds of the first nap of a rank that waits
    SPREAD = 1 << 8  # bytes between two counters, because processors fetch cache lines in pairs

cdef struct Step:
    int kind
    int rank  # that an AWAIT waits for; the message of a START or WAIT; the step to which a FIND or SKIP goes
    int counter
    int buffers[3]  # of the operands and the result
    np.npy_intp starts[3]
    np.npy_intp size  # in bytes


cdef class Arithmetic:
    cdef Loop combine, divide
    cdef void *combine_data
    cdef void *divide_data
    cdef Pairs pairs
    cdef np.npy_intp itemsize, real_itemsize
    cdef char divisor[32]

    cdef int find_loops(self, ufunc, dtype, divisor) except -1

    cdef inline void compute(self, int kind, char **at, np.npy_intp size) noexcept nogil:
        """Combine ``at[0]`` and ``at[1]`` into ``at[2]``, or divide ``at[0]``."""
        cdef np.npy_intp count
        cdef np.npy_intp strides[3]
        if kind == APPLY:
            count = size // self.itemsize
            strides[0] = strides[1] = strides[2] = self.itemsize
            self.combine(at, &count, strides, self.combine_data)
        else:
            at[1], at[2] = self.divisor, at[0]
            count = size // self.real_itemsize
            strides[0] = strides[2] = self.real_itemsize
            strides[1] = 0
            self.divide(at, &count, strides, self.divide_data)


cdef class Steps:
    cdef Step *steps
    cdef int length


cdef class Program(Arithmetic):
    cdef list turns
    cdef readonly np.npy_intp piece
    cdef readonly int slots  # SHORT, MEDIUM or LONG


cdef class Waiting:
    cdef object idle, give_up
    cdef object interruption  # an exception of a signal handler, which is raised when the run is complete
    cdef public bint failed  # a run ended early
    cdef int pauses, yields
    cdef long patience  # nanoseconds until this rank sleeps
    cdef int beside  # waits in which it sleeps at once, because another process uses its core

    cdef int yields_now(self) noexcept nogil
    cdef void let_others_run(self) noexcept nogil

    cdef long look(self, int rank, bint first) except -1
    cdef int end_run(self) except -1


cdef class Slots(Waiting):
    cdef object memory
    cdef readonly int rank, size
    cdef char **areas
    cdef char *scratch
    cdef public uint32_t turn, left  # numbers: of the last turn, and of one that all ranks have left

    cdef int run(self, Program program, char *send, char *recv) except -1
    cdef np.npy_intp begin_turn(self, int slots) except -1 nogil
    cdef void post(self, int counter_) noexcept nogil
    cdef void end_turn(self) noexcept nogil
    cdef int take_turn(self, Program program, Steps turn, char *send, char *recv) except -1 nogil
    cdef int wait(self, int rank, int counter_, uint32_t value) except -1 nogil
    cdef int sleep(self, int rank, int counter_, uint32_t value) except -1
