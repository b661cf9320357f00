# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Collectives in flight that are one run: the part of `pycoll.runtime.task.CoreTask` in C.

They are in a table, so that any thread can move them on without the lock of the interpreter.
"""

from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.pythread cimport (
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_release_lock,
    PyThread_type_lock,
    WAIT_LOCK,
)
from libc.stdint cimport int64_t
from libc.stdlib cimport realloc

from contextvars import copy_context

from .messages cimport Run
from .waiting cimport (
    BESIDE,
    LONG,
    NAP,
    SOON,
    lock,
    lock_left,
    lock_taken,
    nanoseconds_now,
    sched_yield,
    sleep_for,
    yield_core,
)

cdef enum:
    MOST_LOOKS = 100  # without a collective in flight, before the thread in the background sleeps
    MOST_MOVES = 16  # in one look, while they advance
    MOST_IDLE = 16  # the most complete runs that are kept for later calls of a kind
    FASTEST = 2  # bytes per nanosecond; before half of what MPI transmits can have arrived, looks would find little
    LONG_NAP = 500000  # nanoseconds; the longest nap for this reason
    REST = 1000000  # nanoseconds in which a rank that waits for a run moves on only runs
    SHORT_REST = 50000  # the same while other collectives are in flight, too
    MOST_SCRATCH = 1 << 16  # the most bytes of scratch that each of them may have

cdef PyObject **table = NULL  # of RunInFlight, which `tasks` keeps alive
cdef int count = 0, capacity = 0
cdef bint awake = False  # the thread in the background, which `begin` begins; changes while the table is locked
cdef object begin = None
cdef PyThread_type_lock door = PyThread_allocate_lock()  # held, and taken again by this thread to sleep
PyThread_acquire_lock(door, WAIT_LOCK)
cdef int beside = 0  # how many such looks are left
cdef int resting = 0  # threads that wait, and move all on meanwhile
cdef int ends = 0  # how often a run was completed or has ended, so that movers notice it
cdef lock table_lock


cdef void lock_table() noexcept nogil:
    while not lock_taken(&table_lock):
        sched_yield()


cdef int add(RunInFlight run) except -1:
    global table, count, capacity
    cdef PyObject **longer
    lock_table()
    if count == capacity:
        longer = <PyObject **>realloc(table, (2 * capacity + 8) * sizeof(PyObject *))
        if longer == NULL:
            lock_left(&table_lock)
            raise MemoryError
        table, capacity = longer, 2 * capacity + 8
    table[count] = <PyObject *>run
    count += 1
    lock_left(&table_lock)
    return wake()


cdef int wake() except -1:
    """Wake the thread in the background, or begin it, unless it is awake."""
    global awake, begin
    cdef bint slept
    lock_table()
    slept, awake = not awake, True
    lock_left(&table_lock)
    if slept and begin is None:
        PyThread_release_lock(door)
    elif slept:
        begins, begin = begin, None
        begins()
    return 0


cdef int remove(RunInFlight run) except -1:
    """Remove a run, and wait until no thread moves it."""
    global count
    cdef int i
    cdef bint moving
    lock_table()
    for i in range(count):
        if table[i] == <PyObject *>run:
            count -= 1
            table[i] = table[count]
            break
    moving = run.movers > 0
    lock_left(&table_lock)
    while moving:
        with nogil:
            sched_yield()
            lock_table()
            moving = run.movers > 0
            lock_left(&table_lock)
    return 0


cdef PyObject *hold(int number) noexcept nogil:
    """The run at this index of the table, which a thread is about to move; NULL if there is none."""
    cdef PyObject *found = NULL
    lock_table()
    if number < count:
        found = table[number]
        (<RunInFlight>found).count_mover(1)
    lock_left(&table_lock)
    return found


cdef void release(PyObject *held) noexcept nogil:
    lock_table()
    (<RunInFlight>held).count_mover(-1)
    lock_left(&table_lock)


def forget_in_flight():
    """Empty the table, in a child process, which has none of the threads of its parent."""
    global count, awake
    count, awake = 0, True
    lock_left(&table_lock)


cdef int move_all(State *state, PyObject **moving) except -1 nogil:
    """Move on all of them, and add up their states; after an exception, `moving` is the run that has failed."""
    cdef int number = 0
    state.positions, state.travelling, moving[0] = 0, 0, hold(0)
    while moving[0] != NULL:
        (<RunInFlight>moving[0]).move(state)
        release(moving[0])
        number += 1
        moving[0] = hold(number)
    return 0


cdef int fail(PyObject *moving, error) except -1:
    """Note the exception of `move_all`."""
    failed = <RunInFlight>moving
    release(moving)
    failed.fail(error)
    return 0


cdef struct Pace:  # of a mover
    int64_t nap
    State last  # at its last look


cdef Pace FIRST = Pace(0, State(-1, 0))


cdef int look(Pace *pace, double shortest, double longest, PyObject **moving) except -1 nogil:
    """Sleep, and move all on, unless a rank that waits does that."""
    cdef Py_ssize_t before
    if resting:
        sleep_for(REST)
        return 0
    pace.nap = max(<int64_t>(shortest * 1e9), min(pace.nap, <int64_t>(longest * 1e9)))
    sleep_for(max(pace.nap, min(pace.last.travelling // FASTEST, <int64_t>LONG_NAP)))
    pace.nap *= 2
    for _ in range(MOST_MOVES):
        before = pace.last.positions
        move_all(&pace.last, moving)
        if pace.last.positions == before:
            break
        pace.nap = 0
    return 0


cdef class Mover:
    """Moves on the collectives in flight, without the lock of the interpreter where no Python runs in them.

    Parameters
    ----------
    shortest, longest : float
        The time between two looks at them, in seconds: the shortest if they moved, else longer and longer.

    Attributes
    ----------
    others : int
        How many others want to progress; `move_until_others` then returns.
    """

    cdef public double shortest, longest
    cdef public int others
    cdef int seen_ends, seen_others  # when `move` last returned

    def __init__(self, double shortest, double longest):
        self.shortest, self.longest = shortest, longest

    def begins_with(self, function):
        """Call this function at the first `wake`; it begins the thread that calls `move_until_others`."""
        global begin
        begin = function

    @property
    def asleep(self):
        """Whether this thread sleeps, or has not begun."""
        return not awake

    def wake(self):
        """Wake this thread, or begin it; collectives in flight do so themselves."""
        wake()

    def move(self, double seconds, double shortest, double longest):
        """Move them on for some seconds, with such naps, or until there is news; return False if there is nothing to do.

        News is that one was completed since the last call, or that the number of others has changed.
        """
        cdef int64_t end = nanoseconds_now() + <int64_t>(seconds * 1e9)
        cdef bint found = count > 0 or ends != self.seen_ends
        cdef Pace pace = FIRST
        cdef PyObject *moving = NULL
        try:
            with nogil:
                while count and not self.has_news() and nanoseconds_now() < end:
                    look(&pace, shortest, longest, &moving)
        except BaseException as error:
            fail(moving, error)
        self.seen_ends, self.seen_others = ends, self.others
        return found

    cdef bint has_news(self) noexcept nogil:
        return ends != self.seen_ends or self.others != self.seen_others

    def move_until_others(self):
        """Move them on until others want to progress; sleep after MOST_LOOKS looks without any of them.

        A thread that needed the lock of the interpreter at each look would delay all threads that release it, and one
        that needed it to wake up would wait for those that compute.
        """
        cdef int looks = 0
        cdef Pace pace = FIRST
        cdef PyObject *moving = NULL
        try:
            with nogil:
                while not self.others:
                    looks = 0 if count else looks + 1
                    if looks == MOST_LOOKS:
                        self.sleep()
                        looks = 0
                    look(&pace, self.shortest, self.longest, &moving)
        except BaseException as error:
            fail(moving, error)

    cdef void sleep(self) noexcept nogil:
        """Wait for `wake`."""
        global awake
        cdef bint needed
        lock_table()
        needed = awake = count > 0 or self.others > 0
        lock_left(&table_lock)
        if not needed:
            PyThread_acquire_lock(door, WAIT_LOCK)


cdef class Idle:
    """Complete runs, which are kept for later calls of their kind."""

    cdef Run take(self):
        """One of them, or None."""
        cdef Run run = self.first
        if run is not None:
            self.first, run.next = run.next, None
            self.count -= 1
        return run

    cdef int keep(self, Run run) except -1:
        if self.count < MOST_IDLE and run.code.scratch <= MOST_SCRATCH:
            self.first, run.next = run, self.first
            self.count += 1
        return 0


cdef class RunInFlight:
    """A run in flight: a run that is bound to its buffers, its call, and the collectives in flight in this process."""

    def __init__(self, Run run, prepared, list tasks):
        self.make(run, prepared, tasks, None, None, None)

    cdef int make(self, Run run, prepared, list tasks, Idle idle, kept, result) except -1:
        self.run, self.prepared, self.idle, self.kept, self.result = run, prepared, idle, kept, result
        self.tasks = tasks
        self.done = self.active = True
        return 0

    cdef void count_mover(self, int change) noexcept nogil:
        self.movers += change

    cdef int move(self, State *state) except -1 nogil:
        """Move it on, and add its state."""
        global ends
        ends += self.run.move()
        state.positions += self.run.at
        state.travelling += self.run.travelling
        return 0

    @property
    def executable(self):
        """The run; None when it is complete."""
        return None if self.done else self.run

    @property
    def inside(self):
        """Whether a thread runs it."""
        return self.run.active

    def begin(self):
        """Start, and run all steps that need no waiting."""
        self.start()

    def advance(self, bint wait=False):
        """Run all steps that need no waiting, or with `wait` all steps; return whether it is complete."""
        return self.go_on(wait)

    def end(self):
        """Note that it is complete."""
        self.close()

    cdef int start(self) except -1:
        self.done = False
        if self.run.needs_python():
            self.run.context = copy_context()  # another thread may run it
        self.run.begin()
        self.tasks.append(self)
        add(self)
        self.go_on(False)
        return 0

    cdef bint go_on(self, bint wait) except -1:
        try:
            if not (self.done or self.run.broken_off or self.run.advance(wait)):
                return False
        except BaseException as error:
            if self.run.broken_off:
                self.fail(error)
                if isinstance(error, Exception):
                    return True
                self.error = None
            elif self.run.complete:  # a signal handler has raised it
                self.close()
            raise
        while self.run.broken_off and not self.done:  # another thread is about to note the error
            with nogil:
                sched_yield()
        self.close()
        return True

    def Wait(self, status=None):
        """Wait until it is complete, and raise its error; see `pycoll.runtime.requests.Request`."""
        try:
            if self.done:
                self.report()
            else:
                self.finish()
        finally:
            self.active = not self.done
        return True

    def raise_error(self):
        """Raise its error, once; or the exception of a signal handler that came meanwhile."""
        self.report()

    cdef int report(self) except -1:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.run.mailboxes.end_run()
        return 0

    def finish(self):
        """Wait until it is complete, and raise its error."""
        if PyList_GET_SIZE(self.tasks) == 1 and not self.deadline:
            self.go_on(True)
            self.report()
            return
        self.rest()
        if self.run.at == self.run.length and self.go_on(False):
            self.report()
            return
        self.finish_with_others()

    def rest(self):
        """Move all runs on for a while, or until this one is complete."""
        global beside, resting
        cdef PyObject *moving = NULL
        cdef State state
        cdef Py_ssize_t before = -1
        cdef int64_t now = nanoseconds_now(), moved = now
        cdef int64_t end = now + (REST if PyList_GET_SIZE(self.tasks) == count else SHORT_REST)
        resting += 1
        try:
            with nogil:
                while self.run.at < self.run.length and now < end:
                    move_all(&state, &moving)
                    if state.positions != before:
                        before, moved = state.positions, now
                    if beside:
                        beside -= 1
                        sleep_for(NAP)
                    elif state.travelling >= LONG and now - moved > SOON:
                        sleep_for(NAP)
                    elif yield_core():
                        beside = BESIDE
                    now = nanoseconds_now()
        except BaseException as error:
            fail(moving, error)
        finally:
            resting -= 1

    cdef int close(self) except -1:
        global ends
        if self.done:
            return 0
        ends += 1
        if self.run.complete:
            self.error, self.run.error = self.run.error, None
        self.done = True
        self.leave_tasks()
        remove(self)
        if self.idle is not None and self.run.complete:  # else messages are pending
            self.kept = None
            self.idle.keep(self.run)
        return 0

    cdef int leave_tasks(self) except -1:
        cdef Py_ssize_t i
        for i in range(PyList_GET_SIZE(self.tasks)):
            if self.tasks[i] is self:
                del self.tasks[i]
                break
        return 0
