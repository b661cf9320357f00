from libc.stdint cimport int64_t


cdef class Areas:
    cdef int bits, size  # ranks of this host
    cdef int count  # spans
    cdef int64_t *spans  # of the memory of this rank: its begin, its end, and position minus address
    cdef int64_t *shifts  # address minus position, by the number of the area and by rank
    cdef tuple kept  # the arrays of both, and those before, which another thread may be reading

    cdef int64_t position(self, int64_t address, int64_t nbytes) noexcept nogil


cdef class PeerAddresses:
    cdef Areas areas
    cdef int local_rank
    cdef int64_t kind, sent, received, own_block
    cdef int *needed
    cdef int count  # of the needed buffers

    cdef void write(self, char *table, char *send, char *recv) noexcept nogil
    cdef bint find(self, char *table, char **peers) noexcept nogil
