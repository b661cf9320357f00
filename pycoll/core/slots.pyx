# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Slots of memory that the ranks of a host share, and the programs that run collectives through them.

A collective is a sequence of turns.  In each turn, a rank copies a piece of its input to its slot and posts READY, the
counter of this slot.  Others wait for this counter, and read the slot: they combine pieces of several slots, or copy
them.  A rank that combines for others puts the result beside its slot and posts DONE.  At the end of its turn, each rank
posts LEFT.  A slot is written again only when all ranks have left the turn in which it was written last.  There are
several slots, used in turn, so that a rank can copy a piece while others still read the last ones.

A slot begins with its counter, so a short piece reaches a reader in the same cache line.  It also has a number for the
call, which is the same on all ranks if the calls match: a reader compares it.  A rank that waits for long looks at what
the other rank has announced, because ranks may use different slots if their calls do not match.

Turns are numbered from 1, and their numbers wrap around.  A counter that was not posted for 2**31 turns would seem to be
ahead, so ranks post all their counters now and then.  `tests/pure/core/` has a model of this protocol.
"""

cimport cython
cimport numpy as np
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc

from .steps cimport APPLY, AWAIT, COPY, PEERS, POST, RECV, SCRATCH, SEND, Step, Steps
from .waiting cimport LOOK, NAP, SPREAD, nanoseconds_now, pause_briefly

from ..compiler.program import SLOTS
from ..compiler.storage import aligned

np.import_array()

cdef extern from "atomics.h" nogil:
    void announce(announcement *a, uint32_t turn, uint32_t call)
    uint32_t announced(announcement *a, uint32_t *turn)
    uint32_t counter_value(counter *c)
    int counter_reached(counter *c, uint32_t value)
    void counter_set(counter *c, uint32_t value)
    void counter_sleep(counter *c, uint32_t value, long nanoseconds)

cdef extern from "copies.h" nogil:
    void copy(char *to, char *source, size_t size)
    void copy_for_others(char *to, char *source, size_t size)

cdef enum:
    HEADER = 2 * SPREAD  # bytes of DONE and LEFT, which are on cache lines of their own
    PAGE = 1 << 12
    SETTLED = 1 << 30  # turns after which all counters are posted

cdef uint32_t REFUSED = 0xffffffff  # is announced instead of a call

cdef struct Kind:  # of slots
    np.npy_intp start  # in the area of a rank
    np.npy_intp size  # of a slot, and of the result beside it
    np.npy_intp distance  # between two slots
    int count

cdef Kind kinds[4]
cdef np.npy_intp area_size = HEADER
for kind, (size, count, results) in enumerate(SLOTS):
    kinds[kind].start, kinds[kind].size, kinds[kind].count = area_size + BEFORE, size, count
    if results:  # ranks have shares of the data, from one cache line to another
        kinds[kind].start = aligned(kinds[kind].start)
    kinds[kind].distance = aligned(BEFORE + size * (1 + results))
    area_size += kinds[kind].distance * count
area_size = aligned(area_size, PAGE)
AREA_SIZE = area_size
"""Bytes of the area of a rank."""


cdef class SlotCode(Arithmetic):
    """The turns of a collective on one rank.

    Parameters
    ----------
    turns : list of Steps
        Turn i is for the bytes from ``i * piece`` on, of the vector or of each block.
    piece : int
        The most bytes of a turn.
    slots : int
        The kind of the slots, an index in `pycoll.compiler.program.SLOTS`; the same on all ranks.
    ufunc : numpy.ufunc or Pairs, optional
        The operation.
    dtype : numpy.dtype
        The dtype of the operands.
    divisor : numpy.generic, optional
        The number of ranks, in the real dtype of the operands, if there are Divide steps.
    call : int
        A number that tells different calls apart, less than 2**31.
    """

    def __init__(self, list turns, np.npy_intp piece, int slots, ufunc, dtype, divisor=None, uint32_t call=0):
        self.turns, self.piece, self.slots, self.call = turns, piece, slots, call
        self.find_loops(ufunc, dtype, divisor)


@cython.final
cdef class Slots(Waiting):
    """The areas of the ranks of a communicator whose ranks share a host.

    Parameters
    ----------
    oversubscribed, idle, give_up, mpi
        See `Waiting`.
    memory : buffer
        The areas of all ranks, one after the other.
    size : int
        The number of ranks.
    mismatched : callable
        Called with a rank that makes another call; returns the exception to raise.
    """

    def __cinit__(self, bint oversubscribed, idle, give_up, mpi, memory, int size, mismatched):
        cdef unsigned char[::1] view = memory
        self.memory, self.size, self.mismatched = memory, size, mismatched
        self.start, self.distance = <char *>&view[0], area_size

    def __dealloc__(self):
        free(self.scratch)

    def __call__(self, SlotCode program, size_t send, size_t recv):
        """Run a program on buffers at these addresses; 0 for no buffer."""
        self.run(program, <char *>send, <char *>recv)

    cdef int run(self, SlotCode program, char *send, char *recv) except -1:
        cdef np.npy_intp offset = 0
        cdef Steps turn
        for turn in program.turns:
            if program.slots <= SHORT:
                self.take_turn(program, turn, send, recv)
            else:
                with nogil:
                    self.take_turn(program, turn, send + offset, recv + offset)
            offset += program.piece
        return self.end_run()

    cdef int begin_turn(self, int slots, uint32_t call) except -1 nogil:
        """Begin a turn of this call, whose slot is of this kind.

        Waits until all ranks have left the turn in which this slot was used last.
        """
        cdef uint32_t number = self.turn + 1
        cdef Kind *kind = &kinds[slots]
        cdef uint32_t needed = number - kind.count
        cdef uint32_t left = self.turn, value
        cdef int peer
        if <int>(self.left - needed) < 0:
            for peer in range(self.size):
                if peer != self.rank:
                    self.wait(peer, LEFT, needed)
                    value = counter_value(self.counter_of(peer, LEFT))
                    if <int>(value - left) < 0:
                        left = value
            self.left = left
        self.turn = number
        self.slot = kind.start + (number % kind.count) * kind.distance
        self.call = self.call_of(self.rank)[0] = call
        announce(self.announcement_of(self.rank), number, call)
        return 0

    cdef void post(self, int counter_) noexcept nogil:
        """Let other ranks know that this rank has come so far in this turn."""
        counter_set(self.counter_of(self.rank, counter_), self.turn)

    cdef void end_turn(self) noexcept nogil:
        """End a turn."""
        cdef int kind, i
        if self.turn % SETTLED == 0:
            for kind in range(LONG + 1):
                for i in range(kinds[kind].count):
                    self.slot = kinds[kind].start + i * kinds[kind].distance
                    self.post(READY)
            self.post(DONE)
        self.post(LEFT)

    cdef int take_turn(self, SlotCode program, Steps turn, char *send, char *recv) except -1 nogil:
        cdef Kind *kind = &kinds[program.slots]
        cdef char *bases[3]
        cdef char *at[3]
        cdef Step *step
        cdef int i, k, peer
        if turn.needs_scratch and self.scratch == NULL:  # most communicators never do
            self.scratch = <char *>malloc(self.size * kinds[LONG].size)
            if self.scratch == NULL:
                with gil:
                    raise MemoryError
        self.begin_turn(program.slots, program.call)
        bases[SEND], bases[RECV], bases[SCRATCH] = send, recv, self.scratch
        for i in range(turn.length):
            step = &turn.steps[i]
            if step.kind == POST:
                self.post(step.counter)
                continue
            if step.kind == AWAIT:
                if step.counter == READY:
                    self.wait_for_slot(step.rank)
                else:
                    self.wait(step.rank, step.counter, self.turn)
                continue
            for k in range(3 if step.kind == APPLY else 2 if step.kind == COPY else 1):
                peer = step.buffers[k] - PEERS
                if peer < 0:
                    at[k] = bases[step.buffers[k]] + step.starts[k]
                else:
                    at[k] = self.slot_of(peer >> 1) + (peer & 1) * kind.size + step.starts[k]
            if step.kind == COPY and step.buffers[1] >= PEERS:
                copy_for_others(at[1], at[0], step.size)
            elif step.kind == COPY:
                copy(at[1], at[0], step.size)
            else:
                program.compute(step.kind, at, step.size)
        self.end_turn()
        return 0

    cdef int wait_for_slot(self, int rank) except -1 nogil:
        """Wait until the slot of a rank is ready, and compare the calls."""
        self.wait(rank, READY, self.turn)
        if self.call_of(rank)[0] != self.call:
            with gil:
                self.refuse(rank)
        return 0

    cdef int wait(self, int rank, int counter_, uint32_t value) except -1 nogil:
        cdef counter *awaited = self.counter_of(rank, counter_)
        cdef int turn
        for turn in range(self.pauses):
            if counter_reached(awaited, value):
                return 0
            pause_briefly()
        for turn in range(self.yields_now()):
            if counter_reached(awaited, value):
                return 0
            self.let_others_run()
        if counter_reached(awaited, value):
            return 0
        with gil:
            return self.sleep(rank, counter_, value)

    cdef int sleep(self, int rank, int counter_, uint32_t value) except -1:
        cdef counter *awaited = self.counter_of(rank, counter_)
        cdef int64_t asleep = nanoseconds_now() + self.patience, end
        cdef long nap = LOOK if self.is_awake(asleep) else NAP
        first = True
        while True:
            with nogil:
                end = min(asleep, nanoseconds_now() + nap)
                while not counter_reached(awaited, value) and self.yielded(end):
                    pass
                if not self.is_awake(asleep):
                    counter_sleep(awaited, value, nap)
            if counter_reached(awaited, value):
                return 0
            nap = self.look(rank, first)
            first = False
            if self.is_elsewhere(rank, counter_) and not counter_reached(awaited, value):
                self.refuse(rank)

    cdef bint is_elsewhere(self, int rank, int counter_) noexcept:
        """Whether a rank makes another call in this turn, or has begun a later turn, or has refused a call."""
        cdef uint32_t turn
        cdef uint32_t call = announced(self.announcement_of(rank), &turn)
        if call == REFUSED or counter_ == LEFT:
            return call == REFUSED
        return <int>(turn - self.turn) > 0 or (turn == self.turn and call != self.call)

    cdef int refuse(self, int rank) except -1:
        """Raise an error because a rank makes another call, and let others know."""
        announce(self.announcement_of(self.rank), self.turn, REFUSED)
        raise self.mismatched(rank)
