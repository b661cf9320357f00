from libc.stdint cimport int64_t

cdef extern from "atomics.h" nogil:
    ctypedef struct counter:
        pass
    ctypedef int lock
    int lock_taken(lock *l)
    void lock_left(lock *l)
    int64_t nanoseconds_now()
    void pause_briefly()
    int sched_yield()
    int yield_core()
    void sleep_for(int64_t nanoseconds)


cdef enum:
    PATIENCE = 5000000  # nanoseconds before a rank sleeps, because waking up takes tens of microseconds
    SOON = 100000  # the same while MPI transmits long messages
    LOOK = 1000000  # nanoseconds before it looks after other things for the first time
    UNPROBED = 15  # yields between two in which MPI progresses
    LONG = 1 << 16  # bytes that MPI transmits, so that a rank may sleep meanwhile
    NAP = 50000  # nanoseconds of the first nap of a rank that waits
    BESIDE = 100  # waits in which a rank sleeps at once after it had to wait long for its core
    SPREAD = 1 << 8  # bytes between two counters, because processors fetch cache lines in pairs

ctypedef int (*Probe)(int, int, void *, int *, void *) noexcept nogil  # MPI_Iprobe

cdef class Waiting:
    cdef object idle, give_up
    cdef Probe probe
    cdef void *comm
    cdef readonly int rank
    cdef int any_tag
    cdef int yielded_since  # MPI has progressed
    cdef object interruption  # an exception of a signal handler, which is raised when the run is complete
    cdef public bint failed  # a run ended early
    cdef int pauses, yields
    cdef long patience  # nanoseconds until this rank sleeps; 0 if ranks outnumber cores
    cdef int beside  # waits in which it sleeps at once, because another process uses its core

    cdef int yields_now(self) noexcept nogil
    cdef void let_others_run(self) noexcept nogil
    cdef bint is_awake(self, int64_t end) noexcept nogil
    cdef bint yielded(self, int64_t end) noexcept nogil

    cdef long look(self, int rank, bint first) except -1
    cdef int end_run(self) except -1
