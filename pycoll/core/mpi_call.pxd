cdef enum:
    MOST = 9  # arguments

ctypedef int (*Function)(size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t) noexcept nogil

cdef class MpiCall:
    cdef Function function
    cdef size_t words[MOST]
    cdef int send, recv
    cdef object error_of, kept

    cdef int run(self, char *send, char *recv) except -1
