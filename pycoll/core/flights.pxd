from .messages cimport Run


cdef class Flight:
    cdef Run run
    cdef list tasks, background, idle
    cdef readonly object prepared  # the call: its channel, its name, and what its errors need
    cdef object kept  # the buffers of the caller
    cdef readonly object result
    cdef public object thread  # that advances it
    cdef public object owner  # a request that lives until it is complete
    cdef public object error
    cdef public bint done
    cdef public double deadline  # of the wait; 0 for none

    cpdef begin(self)
    cpdef bint advance(self, bint wait=*) except -1
    cpdef finish(self)
    cpdef end(self)
