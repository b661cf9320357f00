# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Programs with messages, run on buffers in host memory.

A run is a program, the addresses of the buffers of one call, and how far it is.  `Run.advance` continues until it would
have to wait, so blocking, nonblocking and persistent collectives are one thing.

Messages between two ranks of a host travel through a mailbox, a queue of entries in memory that they share.  They are
copied into entries, and out of them.  The entry for a long message holds only its address, and the receiver copies
the message from the memory of the sender; where the system forbids this, it travels in several entries.  As in MPI, messages
with the same tag match in the order in which they are started.  All other messages are those of MPI, whose functions are
called by their addresses.
"""

cimport numpy as np
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from .steps cimport APPLY, COPY, DIVIDE, FIND, SCRATCH, SKIP, START, WAIT, Arithmetic, Step, Steps
from .waiting cimport (
    LONG,
    LOOK,
    NAP,
    SOON,
    SPREAD,
    Waiting,
    counter,
    lock_left,
    lock_taken,
    nanoseconds_now,
    pause_briefly,
    sched_yield,
    sleep_for,
)

np.import_array()

cdef extern from "mailboxes.h" nogil:
    enum:
        ENTRIES, ENTRY_SIZE, SHORT_MESSAGE
    int entry_is(entry *e, uint32_t number)
    void entry_set(entry *e, uint32_t number)
    uint32_t mailbox_taken(mailbox *m)
    void mailbox_take(mailbox *m, uint32_t number)
    void bell_ring(counter *bell)
    uint32_t bell_announce(counter *bell)
    void bell_sleep(counter *bell, uint32_t value, long nanoseconds)
    void bell_leave(counter *bell)

cdef extern from "copies.h" nogil:
    void copy(char *to, char *source, size_t size)
    void copy_for_others(char *to, char *source, size_t size)

cdef extern from "fenv.h" nogil:
    int FE_DIVBYZERO, FE_OVERFLOW, FE_UNDERFLOW, FE_INVALID
    int feclearexcept(int)
    int fetestexcept(int)

cdef int ERRORS = FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID


cdef inline void clear_errors() noexcept nogil:
    if fetestexcept(ERRORS):  # clearing takes ten times as long as looking
        feclearexcept(ERRORS)


cdef enum:
    TURNS = 1000  # how often a rank looks for a message of MPI before it calls `idle`
    SHORT_RUN = 1 << 15  # bytes of the programs that keep the lock of the interpreter until they wait
cdef enum:
    IDLE, STARTED, COMPLETE  # states of messages
cdef enum:
    CONTINUED = -1, COPIED = -2  # sizes in entries: the message before goes on; a long message was copied
cdef enum:
    TOO_LONG = -1, UNREADABLE = -2  # what is wrong with a message; positive numbers are error codes of MPI


cdef inline void append(Queue *queue, Pending *message) noexcept nogil:
    message.next = NULL
    if queue.first == NULL:
        queue.first = message
    else:
        queue.last.next = message
    queue.last = message


cdef inline Pending *remove(Queue *queue, uint32_t tag) noexcept nogil:
    """Remove the first message with this tag; NULL if there is none."""
    cdef Pending *before = NULL
    cdef Pending *message = queue.first
    while message != NULL and message.tag != tag:
        before, message = message, message.next
    if message == NULL:
        return NULL
    if before == NULL:
        queue.first = message.next
    else:
        before.next = message.next
    if queue.last == message:
        queue.last = before
    return message


FLOATING_POINT_ERRORS = {"divide": FE_DIVBYZERO, "over": FE_OVERFLOW, "under": FE_UNDERFLOW, "invalid": FE_INVALID}
"""The bits of floating-point errors, by their names in `numpy.geterr`."""


def mailboxes_size(int size):
    """The bytes of the mailboxes of a host with `size` ranks."""
    return size * SPREAD + <size_t>size * size * sizeof(mailbox)


def copied(int process, size_t address):
    """A number of 64 bits in the memory of another process; None if the system forbids this rank to read it."""
    cdef int64_t number
    return number if copy_from_process(process, &number, address, sizeof(number)) else None


cdef class Code(Arithmetic):
    """A program of `pycoll.compiler.program`, in the form that runs read.

    Parameters
    ----------
    program : pycoll.compiler.program.Program
        The program.
    ufunc : numpy.ufunc or Pairs, optional
        The operation, if NumPy has a loop for it.
    dtype : numpy.dtype
        The dtype of the operands.
    divisor : numpy.generic, optional
        The number of ranks, in the real dtype of the operands, if there are Divide steps and a loop for them.
    compute : callable, optional
        What combines and divides without a loop, and where operands are not aligned: called with a list, which gets an
        item before anything is computed, the addresses of the operands and of the result, and the size in bytes;
        without a second operand, it divides.  It returns an exception that a signal handler has raised meanwhile, or
        None.
    """

    def __cinit__(self, program, ufunc, dtype, divisor, compute):
        cdef np.npy_intp moved = 0
        self.program = program
        self.find_loops(ufunc, dtype, divisor)
        self.steps, self.count, self.synchronizing = Steps(program.steps), len(program.messages), program.synchronizing
        self.messages = <Message *>PyMem_Malloc(max(1, self.count) * sizeof(Message))
        if self.messages == NULL:
            raise MemoryError
        self.buffers = SCRATCH + 1
        for i, message in enumerate(program.messages):
            self.messages[i].outgoing, self.messages[i].peer = message.outgoing, message.peer
            self.messages[i].buffer, self.messages[i].start, self.messages[i].size = message.region
            moved += message.region.size
        for i in range(self.steps.length):
            if self.steps.steps[i].kind in (COPY, APPLY, DIVIDE):
                self.computes = self.computes or self.steps.steps[i].kind != COPY
                moved += self.steps.steps[i].size
                for k in range(3):
                    self.buffers = max(self.buffers, self.steps.steps[i].buffers[k] + 1)
        self.short, self.scratch, self.compute_in_python = moved <= SHORT_RUN, program.scratch, compute
        self.alignment = dtype.alignment if ufunc is not None else 1

    def __dealloc__(self):
        PyMem_Free(self.messages)


cdef class Mailboxes(Waiting):
    """How the messages of one communicator travel.

    Parameters
    ----------
    oversubscribed, idle, give_up, mpi
        See `Waiting`.
    memory : buffer, optional
        The mailboxes of this host, or None: then all messages are those of MPI.
    local_ranks : list of int
        For each rank, its number among the ranks of this host, or -1 if its messages are those of MPI.
    processes : list of int
        For each rank, its process; 0 if long messages travel in several entries.
    functions : tuple of int
        The addresses of MPI_Isend, MPI_Irecv and MPI_Test.
    byte : int
        The handle of MPI.BYTE.
    error_of : callable
        Makes an exception from an error code of MPI; from 0, for a message that is longer than its receive buffer.
    arithmetic_error : callable
        Makes an exception, or None, from the bits of `FLOATING_POINT_ERRORS` of a run and the first exception that a
        Python function has raised in it.
    """

    def __cinit__(
        self, bint oversubscribed, idle, give_up, mpi, memory, local_ranks, processes, functions, size_t byte, error_of,
        arithmetic_error,
    ):
        cdef unsigned char[::1] view
        cdef Peer *peer
        cdef char *start = NULL
        cdef char *boxes = NULL
        cdef int here = local_ranks[self.rank], count = sum([local_rank >= 0 for local_rank in local_ranks])
        self.size, self.abandoned = len(local_ranks), []
        self.error_of, self.arithmetic_error = error_of, arithmetic_error
        self.peers = <Peer *>PyMem_Calloc(self.size, sizeof(Peer))
        if self.peers == NULL:
            raise MemoryError
        isend, irecv, test = functions
        self.send, self.receive, self.test = <Begin><size_t>isend, <Begin><size_t>irecv, <Test><size_t>test
        self.byte = <void *>byte
        if memory is None:
            return
        view = memory
        start = <char *>&view[0]
        boxes = start + count * SPREAD
        self.memory, self.near, self.bell = memory, True, <counter *>(start + here * SPREAD)
        for other, local_rank in enumerate(local_ranks):
            if local_rank < 0 or local_rank == here:
                continue
            peer = &self.peers[<int>other]
            peer.near, peer.process = True, processes[other]
            peer.bell = <counter *>(start + <int>local_rank * SPREAD)
            peer.out = <mailbox *>(boxes + (<size_t>here * count + <size_t>local_rank) * sizeof(mailbox))
            peer.inbox = <mailbox *>(boxes + (<size_t>local_rank * count + <size_t>here) * sizeof(mailbox))

    def __dealloc__(self):
        cdef Pending *early
        for other in range(self.size):
            while self.peers[other].early.first != NULL:
                early = self.peers[other].early.first
                self.peers[other].early.first = early.next
                free(early.data)
                free(early)
        PyMem_Free(self.peers)

    def raise_delayed(self):
        """Raise the exception of a signal handler that came while a program ran, if there is one."""
        self.end_run()

    cdef void begin(self, Pending *message, bint outgoing) noexcept nogil:
        """Start a message."""
        cdef Peer *peer = &self.peers[message.peer]
        message.moved, message.state, message.problem = 0, STARTED, 0
        if not peer.near:
            function = self.send if outgoing else self.receive
            message.problem = function(
                message.data, <int>message.size, self.byte, message.peer, <int>message.tag, self.comm, &message.request
            )
            if message.problem:
                message.state = COMPLETE
        elif outgoing:
            append(&peer.sends, message)
            self.write(peer)
        else:
            peer.expected += 1
            if not self.take_early(peer, message):  # it is read later: copying it would delay those that are sent
                append(&peer.receives, message)

    cdef void write(self, Peer *peer) noexcept nogil:
        """Write entries to a mailbox while there is room."""
        cdef Pending *message
        cdef np.npy_intp rest
        cdef entry *e
        while peer.sends.first != NULL:
            if peer.written - peer.seen == ENTRIES:
                peer.seen = mailbox_taken(peer.out)
                if peer.written - peer.seen == ENTRIES:
                    return
            message, e = peer.sends.first, &peer.out.entries[peer.written % ENTRIES]
            if message.acknowledges:
                e.size, e.address = COPIED, message.sender
                message.state = COMPLETE
            elif message.size > SHORT_MESSAGE and peer.process:
                e.tag, e.size, e.address = message.tag, message.size, <uint64_t>message.data
                (<uint64_t *>e.data)[0] = <uint64_t>message
                message.moved = message.size
                peer.expected += 1
            else:
                rest = message.size - message.moved
                e.tag, e.size, e.address = message.tag, (CONTINUED if message.moved else message.size), 0
                copy_for_others(e.data, message.data + message.moved, min(rest, ENTRY_SIZE))
                message.moved += min(rest, ENTRY_SIZE)
                if message.moved == message.size:
                    message.state = COMPLETE
            if message.moved == message.size or message.acknowledges:
                peer.sends.first = message.next
            peer.written += 1
            entry_set(e, peer.written)
            bell_ring(peer.bell)

    cdef void read(self, Peer *peer) noexcept nogil:
        """Read the entries that a peer has written."""
        cdef entry *e
        while peer.expected:  # what comes later may be copied to its buffer at once
            e = &peer.inbox.entries[peer.taken % ENTRIES]
            if not entry_is(e, peer.taken + 1):
                return
            if e.size == COPIED:
                (<Pending *>e.address).state = COMPLETE
                peer.expected -= 1
            elif e.size == CONTINUED:
                self.go_on(peer, e)
            elif not self.arrived(peer, e):
                return
            peer.taken += 1
            mailbox_take(peer.inbox, peer.taken)
            bell_ring(peer.bell)

    cdef bint arrived(self, Peer *peer, entry *e) noexcept nogil:
        """Read the first entry of a message; return False if there is no memory for it."""
        cdef Pending *message = remove(&peer.receives, e.tag)
        if message == NULL:
            message = early_message(e)
            if message == NULL:
                return False
            append(&peer.early, message)
        self.fit(message, e.size)
        if e.address:
            message.source, message.sender = e.address, (<uint64_t *>e.data)[0]
            if not message.early:
                self.copy(peer, message)
        else:
            peer.incoming = message
            self.go_on(peer, e)
        return True

    cdef void fit(self, Pending *message, np.npy_intp size) noexcept nogil:
        """Adapt a message to the size that was sent, which may be shorter than its buffer, but not longer."""
        if size > message.size:
            message.problem = TOO_LONG
        else:
            message.size = size

    cdef void go_on(self, Peer *peer, entry *e) noexcept nogil:
        """Read an entry of a message."""
        cdef Pending *message = peer.incoming
        cdef np.npy_intp here
        if message != NULL:
            here = min(message.size - message.moved, <np.npy_intp>ENTRY_SIZE)
            copy(message.data + message.moved, e.data, here)
            message.moved += here
            self.end_if_read(peer, message)

    cdef void end_if_read(self, Peer *peer, Pending *message) noexcept nogil:
        """Note that a message goes on, or that it is complete."""
        if message.moved < message.size:
            peer.incoming = message
            return
        if peer.incoming == message:
            peer.incoming = NULL
        message.state = COMPLETE
        if not message.early:
            peer.expected -= 1

    cdef void copy(self, Peer *peer, Pending *message) noexcept nogil:
        """Copy a long message from the memory of its sender, and tell the sender."""
        if not copy_from_process(peer.process, message.data, message.source, message.size):
            message.problem = UNREADABLE
        message.acknowledges = True
        peer.expected -= 1
        append(&peer.sends, message)
        self.write(peer)

    cdef bint take_early(self, Peer *peer, Pending *message) noexcept nogil:
        """Receive a message that came before; return whether there is one."""
        cdef Pending *early = remove(&peer.early, message.tag)
        if early == NULL:
            return False
        self.fit(message, early.size)
        if early.source:
            message.source, message.sender = early.source, early.sender
            self.copy(peer, message)
        else:
            if peer.incoming == early:
                peer.incoming = NULL
            message.moved = min(early.moved, message.size)
            copy(message.data, early.data, message.moved)
            self.end_if_read(peer, message)
        free(early.data)
        free(early)
        return True

    cdef void progress(self, Pending *message) noexcept nogil:
        """Read and write what is possible, and test one message of MPI."""
        cdef char status[256]
        cdef int flag = 0, code
        cdef Peer *peer
        for other in range(self.size):
            peer = &self.peers[other]
            if peer.sends.first != NULL:
                self.write(peer)
            if peer.expected:
                self.read(peer)
        if not self.peers[message.peer].near:
            code = self.test(&message.request, &flag, status)
            message.problem = code
            if code or flag:
                message.state = COMPLETE

    cdef int wait(self, Pending *message, bint long_ones) except -1 nogil:
        """Wait until a message is complete; `long_ones` tells whether MPI transmits long messages meanwhile."""
        cdef int turn
        for turn in range(self.pauses + self.yields_now()):
            self.progress(message)
            if message.state == COMPLETE:
                return 0
            if turn < self.pauses:
                pause_briefly()
            else:
                self.let_others_run()
        with gil:
            return self.sleep(message, long_ones)

    cdef int sleep(self, Pending *message, bint long_ones) except -1:
        cdef int64_t asleep = nanoseconds_now() + (min(self.patience, <long>SOON) if long_ones else self.patience), end
        cdef long nap = LOOK if self.is_awake(asleep) else NAP
        first = True
        while True:
            with nogil:
                end = min(asleep, nanoseconds_now() + nap)
                while message.state != COMPLETE and self.yielded(end):
                    self.progress(message)
                if message.state != COMPLETE and not self.is_awake(asleep):
                    self.doze(message, long_ones, nap)
            if message.state == COMPLETE:
                return 0
            lock_left(&self.lock)  # other runs may progress
            try:
                nap = self.look(message.peer, first)
            finally:
                with nogil:
                    self.enter()
            first = False

    cdef void doze(self, Pending *message, bint long_ones, long nap) noexcept nogil:
        """Sleep until another rank of the host rings, at most for `nap` nanoseconds; or look for a message of MPI."""
        cdef uint32_t value
        cdef int turn
        if self.peers[message.peer].near:
            value = bell_announce(self.bell)
            self.progress(message)
            if message.state != COMPLETE:
                bell_sleep(self.bell, value, nap)
            bell_leave(self.bell)
            self.progress(message)
            return
        for turn in range(TURNS):
            self.progress(message)
            if message.state == COMPLETE:
                return
            if long_ones:
                sleep_for(NAP)
            else:
                sched_yield()

    cdef void enter(self) noexcept nogil:
        """Wait until no other thread is in here."""
        while not lock_taken(&self.lock):
            sched_yield()

    cdef int fail(self, Pending *message) except -1:
        """Raise the error of a message."""
        if message.problem == TOO_LONG:
            raise self.error_of(0)
        if message.problem == UNREADABLE:
            raise OSError(f"the memory of rank {message.peer} cannot be read")
        raise self.error_of(message.problem)


cdef Pending *early_message(entry *e) noexcept nogil:
    """Memory for a message whose receive has not started; NULL if there is none."""
    cdef Pending *message = <Pending *>calloc(1, sizeof(Pending))
    if message == NULL:
        return NULL
    message.tag, message.size, message.early = e.tag, e.size, True
    if not e.address:
        message.data = <char *>malloc(max(e.size, <int64_t>1))
        if message.data == NULL:
            free(message)
            return NULL
    return message


cdef class Run:
    """A run of a program, which can begin again when it is complete; an executable (`pycoll.runtime.executable`).

    Parameters
    ----------
    mailboxes : Mailboxes
        Those of the communicator.
    code : Code
        The program.
    scratch : buffer
        Its scratch memory, which lives as long as the run.
    scratch_address : int
        The address of this memory.
    tag : int
        The tag of its messages.
    peer_addresses : PeerAddresses, optional
        Where the buffers of other ranks are, if the program accesses them.
    """

    def __cinit__(
        self, Mailboxes mailboxes, Code code, scratch, size_t scratch_address, uint32_t tag, PeerAddresses peer_addresses=None
    ):
        self.mailboxes, self.code, self.scratch, self.tag, self.peer_addresses = mailboxes, code, scratch, tag, peer_addresses
        self.at = self.length = code.steps.length
        self.pending = <Pending *>PyMem_Calloc(max(1, code.count), sizeof(Pending))
        peers = 2 * peer_addresses.areas.size if peer_addresses is not None else 0
        self.bases = <char **>PyMem_Calloc(max(code.buffers, SCRATCH + 1 + peers), sizeof(char *))
        if self.pending == NULL or self.bases == NULL:
            raise MemoryError
        self.bases[SCRATCH] = <char *>scratch_address

    def __dealloc__(self):
        if self.at == self.length:  # else others may still write to them
            PyMem_Free(self.pending)
        PyMem_Free(self.bases)

    @property
    def program(self):
        """The program."""
        return self.code.program

    @property
    def complete(self):
        """Whether it has run to its end."""
        return self.at == self.length

    @property
    def position(self):
        """The number of the next step."""
        return self.at

    def open_messages(self):
        """The messages that were started and are not complete."""
        return [self.code.program.messages[i] for i in range(self.code.count) if self.pending[<int>i].state == STARTED]

    cpdef bind(self, size_t send, size_t recv, size_t sent=0):
        """Set the addresses of the buffers, 0 for none, and of the numbers of bytes to send to each rank, 0 for all."""
        if self.active:
            raise RuntimeError("this collective runs already, and its signal handlers cannot call it")
        self.bases[0], self.bases[1], self.sent = <char *>send, <char *>recv, <np.npy_intp *>sent
        self.aligned = send % self.code.alignment == 0 and recv % self.code.alignment == 0

    cpdef begin(self):
        """Go to the first step."""
        cdef int i
        for i in range(self.code.count):
            self.pending[i].state, self.pending[i].acknowledges = IDLE, False
        self.at, self.travelling, self.errors, self.error, self.in_python = 0, 0, 0, None, not self.aligned
        if self.peer_addresses is not None:
            self.peer_addresses.write(self.bases[SCRATCH], self.bases[0], self.bases[1])

    def count_messages(self, count):
        """From now on, call `count` with the size of each message that it sends."""
        self.count, self.counts = count, True

    def free(self):
        """Do nothing: requests of MPI end with their messages."""

    cdef int finish(self) except -1:
        """Run all steps, and raise the error of arithmetic if there was one."""
        self.begin()
        self.advance(True)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return 0

    cpdef bint advance(self, bint wait=False, int until=-1) except -1:
        """Run all steps that need no waiting, or with `wait` all steps, but only the first ones if `until` is given.

        Returns whether these steps are complete.
        """
        cdef bint done = False
        if not self.taken():
            if not wait:
                return False
            with nogil:
                while not self.taken():
                    sched_yield()
        if until < 0:
            until = self.length
        try:
            if self.broken_off:  # by another thread
                done = True
            elif self.code.short:
                done = self.go(wait, until)
            else:
                with nogil:
                    done = self.go(wait, until)
        except BaseException:
            self.break_off()
            raise
        finally:
            self.leave()
        if self.at == self.length and (self.errors or self.error is not None):
            self.error, self.errors = self.mailboxes.arithmetic_error(self.errors, self.error), 0
        if wait:
            self.mailboxes.end_run()
        return done

    cdef bint needs_python(self):
        """Whether Python computes in it."""
        return self.code.computes and (self.code.combine == NULL or not self.aligned)

    cdef bint taken(self) noexcept nogil:
        """Whether this thread may run it now: no other one does, or runs another one of its communicator."""
        if not lock_taken(&self.mailboxes.lock):
            return False
        if self.active:
            lock_left(&self.mailboxes.lock)
            return False
        self.active = True
        return True

    cdef void leave(self) noexcept nogil:
        self.active = False
        lock_left(&self.mailboxes.lock)

    cdef int break_off(self) except -1:
        """Note that it cannot continue, and keep it: other ranks may access its buffers."""
        self.broken_off = True
        self.mailboxes.abandoned.append(self)
        return 0

    cdef bint move(self) except -1 nogil:
        """Run all steps that need no waiting, in a thread that only has the lock of the interpreter where Python runs.

        Returns whether it is complete now, and was not before.
        """
        cdef bint done = False, fine = False
        if not self.taken():
            return False
        try:
            if self.at < self.length and not self.broken_off:
                done = self.go(False, self.length)
            fine = True
        finally:
            if not fine:
                with gil:
                    self.break_off()
            self.leave()
        return done

    cdef int go(self, bint wait, int until) except -1 nogil:
        cdef Pending *message
        cdef Step *step
        if self.code.computes:
            clear_errors()
        while self.at < until:
            step = &self.code.steps.steps[self.at]
            if step.kind == START:
                self.start(step.rank)
            elif step.kind == WAIT:
                message = &self.pending[step.rank]
                if message.state != COMPLETE:
                    self.mailboxes.progress(message)
                    if message.state != COMPLETE:
                        if not wait:
                            break
                        if self.code.computes:  # other code may run meanwhile
                            self.errors |= fetestexcept(ERRORS)
                        self.mailboxes.wait(message, self.travelling >= LONG)
                        if self.code.computes:
                            clear_errors()
                if message.problem:
                    with gil:
                        self.mailboxes.fail(message)
                if not self.mailboxes.peers[message.peer].near:
                    self.travelling -= message.size
            elif step.kind == SKIP or (step.kind == FIND and not self.find_peers()):
                self.at = step.rank
                continue
            elif step.kind != FIND:
                self.compute(step)
            self.at += 1
        if self.code.computes:
            self.errors |= fetestexcept(ERRORS)
        return self.at >= until

    cdef int start(self, int number) except -1 nogil:
        """Start a message."""
        cdef Pending *pending = &self.pending[number]
        cdef Message *message = &self.code.messages[number]
        pending.size, pending.peer, pending.tag = message.size, message.peer, self.tag
        pending.data = self.bases[message.buffer] + message.start
        if message.outgoing and self.sent != NULL:
            pending.size = self.sent[message.peer]
        if message.outgoing and self.counts and not (number < self.code.synchronizing and self.mailboxes.near):
            with gil:
                self.count(pending.size)
        if not self.mailboxes.peers[message.peer].near:
            self.travelling += pending.size
        self.mailboxes.begin(pending, message.outgoing)
        return 0

    cdef bint find_peers(self) noexcept nogil:
        """Find the buffers of the other ranks of the host; return False if they are not registered."""
        cdef int i
        if not self.peer_addresses.find(self.bases[SCRATCH], &self.bases[SCRATCH + 1]):
            return False
        for i in range(SCRATCH + 1, self.code.buffers):
            if <size_t>self.bases[i] % self.code.alignment != 0:
                self.in_python = True
        return True

    cdef int compute(self, Step *step) except -1 nogil:
        cdef char *at[3]
        cdef int operands = 2 if step.kind == COPY else 3 if step.kind == APPLY else 1
        for k in range(operands):
            at[k] = self.bases[step.buffers[k]] + step.starts[k]
        if step.kind == COPY:
            copy(at[1], at[0], step.size)
        elif self.in_python or (self.code.combine if step.kind == APPLY else self.code.divide) == NULL:
            with gil:
                if operands == 1:
                    at[1], at[2] = NULL, at[0]
                return self.call((<size_t>at[0], <size_t>at[1], <size_t>at[2], step.size))
        else:
            self.code.compute(step.kind, at, step.size)
        return 0

    cdef bint computed(self, tuple where) except -1:
        """Compute in Python; return False if the exception of a signal handler came before anything was computed."""
        cdef list begun = []
        try:
            if self.context is None:
                interruption = self.code.compute_in_python(begun, *where)
            else:
                interruption = self.context.run(self.code.compute_in_python, begun, *where)
        except BaseException as error:
            if begun or self.mailboxes.interruption is not None:
                raise
            self.mailboxes.interruption = error
            return False
        if self.mailboxes.interruption is None:
            self.mailboxes.interruption = interruption
        return True

    cdef int call(self, tuple where) except -1:
        """Compute in Python, where handlers of signals may run."""
        self.errors |= fetestexcept(ERRORS)
        lock_left(&self.mailboxes.lock)  # it may call handlers of signals, which may call anything
        try:
            while not self.computed(where):
                pass
        except (ArithmeticError, Warning) as error:  # other ranks wait for the next steps
            self.error = self.error or error
        finally:
            with nogil:
                self.mailboxes.enter()
        clear_errors()  # it reports errors itself
        return 0
