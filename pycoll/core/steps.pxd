cimport numpy as np

from .pairs cimport Loop, Pairs

cdef enum:
    COPY, APPLY, DIVIDE, POST, AWAIT, START, WAIT, FIND, SKIP  # kinds of steps
cdef enum:
    SEND, RECV, SCRATCH, PEERS  # buffers; PEERS is the slot of rank 0, PEERS + 1 its result, PEERS + 2 the slot of rank 1


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
    cdef bint needs_scratch
