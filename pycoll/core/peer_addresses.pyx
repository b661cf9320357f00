# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Where the buffers of a call lie in registered memory: what a rank tells the others, and how it finds their buffers.

The ranks of a host exchange a table with a row for each rank: the addresses of its input and of its output, and the kind
of its call.  `pycoll.runtime.registered` manages the memory, `pycoll.compiler.if_registered` makes the programs.
"""

cimport numpy as np
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int64_t

cdef enum:
    INPUT, OUTPUT, KIND, COLUMNS  # of the table


cdef class Areas:
    """The registered memory of a communicator, as this rank maps it.

    Parameters
    ----------
    bits : int
        The number of an area is in the bits of a position from here on, the offset in its part in those below.
    size : int
        The number of ranks of this host.
    """

    def __cinit__(self, int bits, int size):
        self.bits, self.size, self.kept = bits, size, ()

    def set(self, np.ndarray spans, np.ndarray shifts):
        """Set the spans of this rank, and its shifts: arrays of int64 as `Areas` has them."""
        self.kept = spans, shifts, *self.kept[:2]  # with those before, which another thread may be reading
        self.count = min(self.count, <int>len(spans))
        self.spans, self.shifts = <int64_t *>np.PyArray_DATA(spans), <int64_t *>np.PyArray_DATA(shifts)
        self.count = <int>len(spans)

    cdef int64_t position(self, int64_t address, int64_t nbytes) noexcept nogil:
        """The position of memory of this rank; -1 if it is not registered."""
        cdef int64_t *span
        cdef int i
        for i in range(self.count):
            span = &self.spans[3 * i]
            if span[0] <= address and address + nbytes <= span[1]:
                return address + span[2]
        return -1


cdef class PeerAddresses:
    """How calls of one kind use the memory of other ranks.

    Parameters
    ----------
    areas : Areas
        The registered memory.
    local_rank : int
        The number of this rank among those of its host.
    needed : sequence of (int, int)
        The buffers that must be registered: ranks of this host, and 0 for the input or 1 for the output.
    kind : int
        The same on all ranks that can take part.
    sizes : (int, int)
        The bytes of the send buffer and of the receive buffer.
    own_block : int
        If this rank works in place, where its input begins in the receive buffer.
    """

    def __cinit__(self, Areas areas, int local_rank, needed, int64_t kind, sizes, int64_t own_block):
        self.areas, self.local_rank, self.kind, self.own_block = areas, local_rank, kind, own_block
        self.sent, self.received = sizes
        self.count = len(needed)
        self.needed = <int *>PyMem_Calloc(self.count + 1, sizeof(int))
        if self.needed == NULL:
            raise MemoryError
        for i, (rank, which) in enumerate(needed):
            self.needed[<int>i] = 2 * rank + which

    def __dealloc__(self):
        PyMem_Free(self.needed)

    cdef void write(self, char *table, char *send, char *recv) noexcept nogil:
        """Write the row of this rank."""
        cdef int64_t *row = <int64_t *>table + self.local_rank * COLUMNS
        row[OUTPUT], row[KIND] = self.areas.position(<int64_t>recv, self.received), self.kind
        if send != NULL:
            row[INPUT] = self.areas.position(<int64_t>send, self.sent)
        else:
            row[INPUT] = row[OUTPUT] + self.own_block if row[OUTPUT] >= 0 else -1

    cdef bint find(self, char *table, char **peers) noexcept nogil:
        """Find the buffers of all ranks; False if one of them is not registered, or if the calls of the ranks differ."""
        cdef int64_t *rows = <int64_t *>table
        cdef int64_t position
        cdef int i, rank
        for rank in range(self.areas.size):
            if rows[rank * COLUMNS + KIND] != self.kind:
                return False
        for i in range(self.count):
            rank = self.needed[i] >> 1
            position = rows[rank * COLUMNS + (self.needed[i] & 1)]
            if position < 0:
                return False
            peers[self.needed[i]] = <char *>(position + self.areas.shifts[(position >> self.areas.bits) * self.areas.size + rank])
        return True
