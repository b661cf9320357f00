cimport numpy as np
from libc.stdint cimport int64_t, uint32_t, uint64_t

from .peer_addresses cimport PeerAddresses
from .steps cimport Arithmetic, Step, Steps
from .waiting cimport Waiting, counter, lock

cdef extern from "copies.h" nogil:
    int copy_from_process(int process, void *to, uint64_t start, size_t size)

cdef extern from "mailboxes.h" nogil:
    ctypedef struct entry:
        uint32_t tag
        int64_t size
        uint64_t address
        char data[1]
    ctypedef struct mailbox:
        entry entries[1]

ctypedef int (*Begin)(void *, int, void *, int, int, void *, void *) noexcept nogil  # MPI_Isend and MPI_Irecv
ctypedef int (*Test)(void *, int *, void *) noexcept nogil

cdef struct Message:  # of a program
    bint outgoing
    int peer
    int buffer
    np.npy_intp start, size

cdef struct Pending:  # a message of a run, or an early one: it has come before its receive was started
    Pending *next
    uint32_t tag
    char *data
    np.npy_intp size
    np.npy_intp moved  # how many bytes were written or read
    uint64_t source, sender  # of a long message: where it is, and where its sender keeps account of it
    void *request  # of MPI; a handle may have fewer bytes
    int peer
    int state
    int problem  # what is wrong with it
    bint early
    bint acknowledges  # it only says that a long message was copied

cdef struct Queue:
    Pending *first
    Pending *last

cdef struct Peer:
    bint near  # messages travel through the mailboxes
    mailbox *out
    mailbox *inbox
    counter *bell
    int process
    uint32_t written, taken  # entries
    uint32_t seen  # the number of entries that the peer had taken when this rank looked
    int expected  # receives, and long messages that the peer has to copy
    Queue sends, receives, early
    Pending *incoming  # the message that goes on in the next entry; NULL if it is dropped, because it is too long


cdef class Code(Arithmetic):
    cdef readonly object program
    cdef Steps steps
    cdef Message *messages
    cdef int count, synchronizing  # messages
    cdef object compute_in_python
    cdef int alignment  # of operands
    cdef readonly np.npy_intp scratch  # bytes
    cdef int buffers
    cdef bint short, computes


cdef class Mailboxes(Waiting):
    cdef object memory, error_of, arithmetic_error
    cdef Peer *peers
    cdef int size
    cdef counter *bell
    cdef Begin send, receive
    cdef Test test
    cdef void *byte
    cdef lock lock  # held by the thread that is in here
    cdef readonly bint near  # some messages travel through mailboxes
    cdef list abandoned  # runs that have ended early: other ranks may access their buffers

    cdef void begin(self, Pending *message, bint outgoing) noexcept nogil
    cdef void write(self, Peer *peer) noexcept nogil
    cdef void read(self, Peer *peer) noexcept nogil
    cdef bint arrived(self, Peer *peer, entry *e) noexcept nogil
    cdef void fit(self, Pending *message, np.npy_intp size) noexcept nogil
    cdef void go_on(self, Peer *peer, entry *e) noexcept nogil
    cdef void end_if_read(self, Peer *peer, Pending *message) noexcept nogil
    cdef void copy(self, Peer *peer, Pending *message) noexcept nogil
    cdef bint take_early(self, Peer *peer, Pending *message) noexcept nogil
    cdef void progress(self, Pending *message) noexcept nogil
    cdef int wait(self, Pending *message, bint long_ones) except -1 nogil
    cdef int sleep(self, Pending *message, bint long_ones) except -1
    cdef void doze(self, Pending *message, bint long_ones, long nap) noexcept nogil
    cdef void enter(self) noexcept nogil
    cdef int fail(self, Pending *message) except -1


cdef class Run:
    cdef Mailboxes mailboxes
    cdef Code code
    cdef Pending *pending
    cdef char **bases
    cdef int at, length  # the next step, and how many there are
    cdef np.npy_intp travelling  # bytes of messages of MPI that were started and not awaited
    cdef bint active  # a thread runs it; changes while the mailboxes are locked
    cdef bint in_python  # operands are not aligned
    cdef int errors  # in floating-point arithmetic
    cdef bint aligned  # the buffers of this rank are
    cdef object scratch
    cdef PeerAddresses peer_addresses
    cdef public uint32_t tag  # of its messages, the next time that it begins
    cdef Run next  # where it is idle
    cdef object context  # in which Python computes; None for that of the thread
    cdef np.npy_intp *sent  # the bytes to send to each rank, at most those of the message; NULL for all of them
    cdef object count  # called with the sizes of the messages that it sends
    cdef bint counts
    cdef public object error  # of arithmetic: other ranks wait for the next steps, so it is raised last
    cdef readonly bint broken_off  # it ended early, so that it cannot continue: messages may be pending

    cpdef bind(self, size_t send, size_t recv, size_t sent=*)
    cpdef begin(self)
    cdef int finish(self) except -1
    cpdef bint advance(self, bint wait=*, int until=*) except -1
    cdef bint needs_python(self)
    cdef bint taken(self) noexcept nogil
    cdef void leave(self) noexcept nogil
    cdef int break_off(self) except -1
    cdef bint move(self) except -1 nogil
    cdef int go(self, bint wait, int until) except -1 nogil
    cdef int start(self, int number) except -1 nogil
    cdef bint find_peers(self) noexcept nogil
    cdef int compute(self, Step *step) except -1 nogil
    cdef bint computed(self, tuple where) except -1
    cdef int call(self, tuple where) except -1
