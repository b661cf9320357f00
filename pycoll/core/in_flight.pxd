from libc.stdint cimport int64_t

from .messages cimport Run


cdef struct State:  # of runs
    Py_ssize_t positions  # the numbers of their next steps, added up
    int64_t travelling  # bytes of messages of MPI that were started and not awaited


cdef class Idle:
    cdef Run first
    cdef int count

    cdef Run take(self)
    cdef int keep(self, Run run) except -1


cdef class RunInFlight:
    cdef Run run
    cdef list tasks
    cdef Idle idle  # where the run is kept for later calls when it is complete
    cdef readonly object prepared  # the call: its channel, its name, and what its errors need
    cdef object kept  # the buffers of the caller
    cdef public object result  # what `wait` returns
    cdef public object error
    cdef public bint done
    cdef public bint active  # its completion has not been reported yet
    cdef int movers  # threads that are moving it; counted while the table is locked
    cdef public double deadline  # of the wait; 0 for none

    cdef void count_mover(self, int change) noexcept nogil
    cdef int move(self, State *state) except -1 nogil

    cdef int make(self, Run run, prepared, list tasks, Idle idle, kept, result) except -1
    cdef int report(self) except -1
    cdef int leave_tasks(self) except -1

    # those of the methods `begin`, `advance` and `end`: a class in Python could override them if they were cpdef, so each
    # call would look for that
    cdef int start(self) except -1
    cdef bint go_on(self, bint wait) except -1
    cdef int close(self) except -1
