# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""What programs in slots and programs with messages share: their steps, and the loops of NumPy, which combine and divide."""

cimport numpy as np
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.string cimport memcpy

from .pairs cimport Pairs

from ..compiler.program import Apply, Await, CopyBytes, Divide, FindPeers, Post, Skip, Start, Wait

np.import_array()

cdef extern from "numpy/ufuncobject.h":
    ctypedef struct PyUFuncObject:
        int nin, ntypes, nargs
        Loop *functions
        void **data
        char *types


def has_loop(ufunc, dtype):
    """Whether NumPy has a loop that computes ``ufunc(x, y)`` of two arrays of this dtype, with a result of this dtype."""
    cdef void *data
    return dtype.isnative and dtype.num < 24 and find_loop(ufunc, dtype.num, &data) != NULL


cdef Loop find_loop(object ufunc, int type_num, void **data) except? NULL:
    cdef PyUFuncObject *functions = <PyUFuncObject *>ufunc
    cdef int i
    if functions.nin != 2 or functions.nargs != 3:
        return NULL
    for i in range(functions.ntypes):
        if functions.types[3 * i] == functions.types[3 * i + 1] == functions.types[3 * i + 2] == type_num:
            data[0] = functions.data[i] if functions.data != NULL else NULL
            return functions.functions[i]
    return NULL


cdef class Arithmetic:
    """What combines and divides: loops for one dtype, which are those of NumPy but for pairs."""

    cdef int find_loops(self, ufunc, dtype, divisor) except -1:
        self.itemsize = dtype.itemsize
        if isinstance(ufunc, Pairs):
            self.pairs = ufunc
            self.combine, self.combine_data = self.pairs.loop, &self.pairs.layout
        elif ufunc is not None:
            self.combine = find_loop(ufunc, dtype.num, &self.combine_data)
            if self.combine == NULL:
                raise TypeError(f"NumPy has no loop for {ufunc.__name__} of {dtype}")
        if divisor is not None:
            from numpy import true_divide
            self.divide = find_loop(true_divide, divisor.dtype.num, &self.divide_data)
            self.real_itemsize = divisor.dtype.itemsize
            value = divisor.tobytes()
            memcpy(self.divisor, <char *>value, len(value))
        return 0


cdef class Steps:
    """The steps of a turn, or of a program with messages."""

    def __cinit__(self, list steps):
        cdef Step *to
        self.length = len(steps)
        self.steps = <Step *>PyMem_Calloc(max(1, self.length), sizeof(Step))
        if self.steps == NULL:
            raise MemoryError
        for i, step in enumerate(steps):
            to = &self.steps[i]
            if type(step) is Start or type(step) is Wait:
                to.kind, to.rank = START if type(step) is Start else WAIT, step.message
            elif type(step) is FindPeers or type(step) is Skip:
                to.kind, to.rank = FIND if type(step) is FindPeers else SKIP, step[0]
            elif type(step) is Post:
                to.kind, to.counter = POST, step.counter
            elif type(step) is Await:
                to.kind, to.rank, to.counter = AWAIT, step.rank, step.counter
            else:
                to.kind = {CopyBytes: COPY, Apply: APPLY, Divide: DIVIDE}[type(step)]
                to.size = step[0].size
                for operand, region in enumerate(step):
                    to.buffers[operand], to.starts[operand] = region.buffer, region.start
                    self.needs_scratch = self.needs_scratch or region.buffer == SCRATCH

    def __dealloc__(self):
        PyMem_Free(self.steps)
