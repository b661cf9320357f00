# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""How a rank waits for another one: it looks a few times, yields its core, then sleeps."""


cdef class Waiting:
    """What a rank does while it waits for another one.

    Parameters
    ----------
    oversubscribed : bool
        Whether ranks outnumber cores; then a rank that waits yields its core at once.
    idle : callable
        Called between two naps, in which a rank sleeps or only yields its core, with the rank that this rank is waiting
        for, and whether it was the first nap; returns the length of the next one in nanoseconds.  An error ends the run
        if `idle` has set `failed`.  Any other exception is that of a signal handler, and is raised when the run is
        complete; the second one ends the run, and so does one with an attribute `ends_wait`.
    give_up : callable
        Called with the awaited rank and the exception before the second exception of a signal handler ends a run.
    mpi : tuple of int
        The address of MPI_Iprobe, the handle of the communicator, the rank of this process, and MPI_ANY_TAG.
    """

    def __cinit__(self, bint oversubscribed, idle, give_up, mpi, *more):
        self.idle, self.give_up = idle, give_up
        probe, comm, self.rank, self.any_tag = mpi
        self.probe, self.comm = <Probe><size_t>probe, <void *><size_t>comm
        self.pauses, self.yields, self.patience = (0 if oversubscribed else 30), 20, (0 if oversubscribed else PATIENCE)

    cdef int yields_now(self) noexcept nogil:
        """How often to yield the core in this wait: not if another process uses it, which then keeps it for long."""
        if self.beside:
            self.beside -= 1
            return 0
        return self.yields

    cdef void let_others_run(self) noexcept nogil:
        """Yield the core."""
        if yield_core():
            self.beside = BESIDE

    cdef bint is_awake(self, int64_t end) noexcept nogil:
        """Whether to yield the core in place of sleeping: until `end`, unless another process uses it."""
        return not self.beside and nanoseconds_now() < end

    cdef bint yielded(self, int64_t end) noexcept nogil:
        """Yield the core before `end`, unless another process uses it; return whether it did.  MPI progresses meanwhile."""
        cdef char status[256]
        cdef int flag
        if not self.is_awake(end):
            return False
        self.let_others_run()
        self.yielded_since += 1
        if self.yielded_since > UNPROBED:
            self.yielded_since = 0
            self.probe(self.rank, self.any_tag, self.comm, &flag, status)
        return True

    cdef long look(self, int rank, bint first) except -1:
        """Call `idle` after a nap, and return the length of the next one."""
        try:
            return self.idle(rank, first)
        except BaseException as error:  # of a signal handler, unless `idle` has set `failed`
            if not self.failed and (self.interruption is not None or hasattr(error, "ends_wait")):
                self.failed = True
                self.give_up(rank, error)
            if self.failed:
                self.interruption = None
                raise
            self.interruption = error
            return NAP

    cdef int end_run(self) except -1:
        """Raise the exception of a signal handler that was delayed."""
        if self.interruption is not None:
            interruption, self.interruption = self.interruption, None
            raise interruption
        return 0
