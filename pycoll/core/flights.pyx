# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Collectives in flight that are one run of the machine: the part of `pycoll.runtime.progress.MachineTask` in C."""

from cpython.list cimport PyList_GET_SIZE
from cpython.pythread cimport PyThread_get_thread_ident

cdef enum:
    MOST_IDLE = 16  # the most complete runs that are kept for later calls of a kind
    MOST_SCRATCH = 1 << 16  # the most bytes of scratch that each of them may have


cdef class Flight:
    """A run in flight.

    Parameters
    ----------
    run : Run
        The run, bound to its buffers.
    prepared : pycoll.runtime.dispatch.Prepared
        The call.
    busy : tuple of lists
        The collectives in flight in this process, and the threads that advance them.
    idle : list, optional
        Where the run is kept for later calls when it is complete.
    kept : object
        What lives until then: the buffers of the caller.
    result : object
        What `wait` returns.
    """

    def __cinit__(self, Run run, prepared, tuple busy, list idle, kept, result):
        self.run, self.prepared, self.idle, self.kept, self.result = run, prepared, idle, kept, result
        self.tasks, self.background = busy

    @property
    def executable(self):
        """The run; None when it is complete."""
        return None if self.done else self.run

    @property
    def inside(self):
        """Whether a thread runs it."""
        return self.run.active

    cpdef begin(self):
        """Start, and run all steps that need no waiting."""
        self.thread, self.done = PyThread_get_thread_ident(), False
        self.tasks.append(self)
        self.run.begin()
        self.advance()

    cpdef bint advance(self, bint wait=False) except -1:
        """Run all steps that need no waiting, or with `wait` all steps; return whether it is complete."""
        if self.done or self.run.broken_off:
            return True
        try:
            if not self.run.advance(wait):
                return False
        except BaseException as error:
            if self.run.broken_off:
                self.fail(error)
                if isinstance(error, Exception):
                    return True
                self.error = None
            elif self.run.complete:  # a signal handler has raised it
                self.end()
            raise
        self.end()
        return True

    cpdef finish(self):
        """Wait until it is complete, and raise its error."""
        if PyList_GET_SIZE(self.tasks) != 1 or PyList_GET_SIZE(self.background) or self.deadline:
            self.finish_with_others()
            return
        self.thread = PyThread_get_thread_ident()
        self.advance(True)
        if self.error is not None:
            self.raise_error()

    cpdef end(self):
        """Note that it is complete."""
        if self.done:
            return
        self.done, self.owner = True, None
        self.tasks.remove(self)
        if not self.run.complete:  # messages are pending
            return
        self.error, self.run.error = self.run.error, None
        if self.idle is not None:
            self.kept = None
            if PyList_GET_SIZE(self.idle) < MOST_IDLE and self.run.code.scratch <= MOST_SCRATCH:
                self.idle.append(self.run)
