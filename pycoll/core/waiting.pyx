# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""How a rank waits for another one: it looks a few times, yields its core, then sleeps."""


cdef class Waiting:
    """What a rank does while it waits for another one.

    Parameters
    ----------
    oversubscribed : bool
        Whether ranks outnumber cores; then a rank that waits yields its core at once.
    idle : callable
        Called between two naps with the rank that this rank is waiting for, and whether it was the first nap; returns
        the length of the next one in nanoseconds.  An error ends the run if `idle` has set `failed`.  Any other
        exception is that of a signal handler, and is raised when the run is complete; the second one ends the run, and so
        does one with an attribute `ends_wait`.
    give_up : callable
        Called with the awaited rank and the exception before the second exception of a signal handler ends a run.
    """

    def __cinit__(self, bint oversubscribed, idle, give_up, *more):
        self.idle, self.give_up = idle, give_up
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
