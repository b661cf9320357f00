from .messages cimport Run


cdef class RunInFlight:
    cdef Run run
    cdef list tasks, asleep, idle
    cdef readonly object prepared  # the call: its channel, its name, and what its errors need
    cdef object kept  # the buffers of the caller
    cdef readonly object result
    cdef public object owner  # a request that lives until it is complete
    cdef public object error
    cdef public bint done
    cdef int movers  # threads that are moving it; counted while the table is locked
    cdef public double deadline  # of the wait; 0 for none

    cdef void count_mover(self, int change) noexcept nogil
    cdef int move(self, Py_ssize_t *positions) except -1 nogil

    # those of the methods `begin`, `advance` and `end`: a class in Python could override them if they were cpdef, so each
    # call would look for that
    cdef int start(self) except -1
    cdef bint go_on(self, bint wait) except -1
    cdef int close(self) except -1
