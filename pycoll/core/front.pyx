# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The front: reads the arguments of a call, and finds the plan for calls of its kind.

Calls of one kind differ only in the contents and addresses of their buffers.  The first one takes the uncached path of
`pycoll.runtime.dispatch`, which checks everything and remembers a plan here.  Everything that is not in the key of a
plan is checked in each call: that arrays are contiguous, aligned and writeable, and that they do not overlap.  What the
front cannot read goes to the uncached path each time.
"""

cimport numpy as np
from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from libc.string cimport memcmp, memcpy

from .in_flight cimport Idle, RunInFlight
from .messages cimport Run
from .slots cimport SlotCode, Slots

from .not_built import MISSED

from sys import modules

from mpi4py import MPI
from numpy import dtype, empty, integer

np.import_array()

cdef enum:
    MOST_PLANS = 256
    MOST_DATATYPES = 64
    MOST_WORDS = 9  # arguments of a collective of MPI
    ALIGNMENT = 16  # of all numbers
    HALF = 23
    USER_DEFINED = 256
    PARAMETRIC = 2056  # numbers of types in NumPy: NPY_HALF, NPY_USERDEF, NPY_VSTRING
cdef enum:
    ABSENT, IN_PLACE, MEMORY, COUNTED, PLACED, TYPED  # the kinds of buffers: with counts, displacements, datatypes

cdef enum:  # what a primitive does with its buffers
    SENDS = 1
    SENDS_AT_ROOT = 2  # only at the root
    RECEIVES = 4
    RECEIVES_AT_ROOT = 8
    VECTOR_SENT = 16  # with counts and displacements
    VECTOR_RECEIVED = 32
    KEEPS_AT_ROOT = 64  # the root only reads its receive buffer
    REDUCES = 128
    ROOTED = 256
    TAKES_ALL = 512  # the send buffer has a block for each rank
    GIVES_ALL = 1024  # the receive buffer has a block of each rank
    TYPES = 2048  # each block has a datatype
    NEAR = 4096  # there is a block for each neighbor, not for each rank

cdef enum:  # the kinds of calls: methods of `pycoll.Comm` and functions, blocking and nonblocking
    METHOD, LATER_METHOD, FUNCTION, LATER_FUNCTION, KINDS

cdef enum:
    DERIVED = -1

cdef struct Buffer:
    char *address
    np.npy_intp nbytes
    int type  # the number of the type in NumPy
    np.npy_intp itemsize
    int kind
    int datatype  # the number of the datatype that is given, from 1; DERIVED for one that is not predefined
    size_t derived  # its address then, and
    long long count  # the number of elements of this datatype, or -1
    Py_buffer view  # of memory that could be resized, and
    bint held  # whether this is held, until the call is complete

cdef PyObject *datatypes[MOST_DATATYPES]
cdef int types[MOST_DATATYPES]
cdef int datatype_count = 0
cdef PyObject *in_place_constant = NULL
cdef int formats[128]  # one more than the type in NumPy, by the character of the buffer protocol; 0 for others
cdef object datatype_class  # that of MPI
cdef set plain_types = {bytearray, bytes, memoryview, MPI.buffer}  # of memory with the buffer protocol
cdef dict later_types = {"array": "array", "mmap": "mmap"}  # the same, if the program has imported their modules
cdef object is_more_than_memory = None
cdef object tensor_type = None  # torch.Tensor
for character in "?bBhHiIlLqQefdgFDG":
    formats[<int>ord(character)] = canonical(dtype(character).num) + 1


def uses_of(primitive):
    """What a primitive of `pycoll.schedule.registry` does with its buffers, as a number."""
    name = primitive.name
    if name == "barrier":
        return 0
    if name == "bcast":
        return RECEIVES | KEEPS_AT_ROOT | ROOTED
    uses = SENDS | RECEIVES | (ROOTED if primitive.rooted else 0) | (REDUCES if primitive.reduces else 0)
    uses |= (TAKES_ALL if primitive.takes_all else 0) | (GIVES_ALL if primitive.gives_all else 0)
    if primitive.rooted and primitive.takes_all:
        uses |= SENDS_AT_ROOT
    elif primitive.rooted:
        uses |= RECEIVES_AT_ROOT
    if primitive.varies:
        uses |= (VECTOR_SENT if primitive.takes_all else 0) | (VECTOR_RECEIVED if primitive.gives_all else 0)
    return uses | (TYPES if name.endswith("alltoallw") else 0) | (NEAR if primitive.near else 0)


def set_constants(in_place, known, function):
    """Set MPI.IN_PLACE, and the predefined datatypes of MPI with their dtypes; these objects are never freed.

    `function` tells whether the memory of an object is not its value.
    """
    global in_place_constant, datatype_count, datatype_class, is_more_than_memory
    is_more_than_memory = function
    in_place_constant, datatype_class = <PyObject *>in_place, type(known[0][0])
    datatype_count = 0
    for datatype, its_dtype in known[:MOST_DATATYPES]:
        datatypes[datatype_count] = <PyObject *>datatype
        types[datatype_count] = canonical(its_dtype.num)
        datatype_count += 1


cdef inline int canonical(int type_num) noexcept:
    """One number for types of the same representation."""
    if sizeof(long) == sizeof(long long):
        if type_num == np.NPY_LONGLONG:
            return np.NPY_LONG
        if type_num == np.NPY_ULONGLONG:
            return np.NPY_ULONG
    return type_num


ctypedef int (*Function)(size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t) noexcept nogil


cdef class MpiCall:
    """A blocking collective of MPI whose arguments are fixed, except the addresses of the two buffers.

    An argument of such a function is an integer, an address or a handle.  The calling conventions of 64-bit processors
    pass each of them as one word, and a function does not look at words after its last argument.

    Parameters
    ----------
    function : int
        The address of the function.
    words : list of int
        Its arguments.
    send, recv : int
        The positions of the addresses of the buffers among them, or -1.
    error_of : callable
        Returns the exception for an error code.
    kept : object
        What must live as long as this.
    """

    cdef Function function
    cdef size_t words[MOST_WORDS]
    cdef int send, recv
    cdef object error_of, kept

    def __init__(self, size_t function, list words, int send, int recv, error_of, kept):
        self.function = <Function>function
        self.send, self.recv, self.error_of, self.kept = send, recv, error_of, kept
        for position, word in enumerate(words):
            self.words[position] = word

    cdef int run(self, char *send, char *recv) except -1:
        """Call the function."""
        cdef size_t at[MOST_WORDS]
        cdef int code
        memcpy(at, self.words, sizeof(at))  # another thread may call it with other buffers
        if self.send >= 0:
            at[self.send] = <size_t>send
        if self.recv >= 0:
            at[self.recv] = <size_t>recv
        with nogil:
            code = self.function(at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], at[8])
        if code:
            raise self.error_of(code)
        return 0


cdef class Plan:
    """What calls of one kind have in common.

    A program runs in the slots, a run on mailboxes or messages.  Without both, the call is left to MPI: `mpi` calls it;
    if there is no `mpi`, mpi4py gets the arguments.
    """

    cdef int root
    cdef object algorithm
    cdef object op, kept  # the operation, and datatypes, so that their identities are not reused
    cdef Buffer send, recv
    cdef bytes counts
    cdef object prepared  # a call of this kind, without buffers
    cdef SlotCode program
    cdef Run run
    cdef MpiCall mpi
    cdef bint is_in_flight  # it is a nonblocking call that is one run
    cdef Idle idle  # runs of collectives in flight that are complete
    cdef object shape, dtype  # of a receive buffer that is allocated; or None
    cdef tuple given  # shape and dtype of the send buffer then


cdef class Front:
    """The plans of a communicator.

    Parameters
    ----------
    slots : Slots, optional
        The slots of the host, if programs run there.
    rank, size : int
        Those of the communicator.
    sources, destinations : int
        The number of neighbors from which it receives, and to which it sends.
    tasks : list
        The collectives in flight; while there are any, MPI runs nothing here.
    background : list
        Not empty if collectives in flight are to progress often, those of MPI among them.
    uses : list of int
        What each primitive does with its buffers; the last one is the reduce-scatter with counts.
    comm : MPI.Intracomm
        The communicator of the calls that are left to MPI.
    natives : list of callables
        The blocking methods of MPI in the same order, then the nonblocking ones.
    task : type
        A class derived from `RunInFlight`.
    tags : iterator of int
        The tags of collectives in flight.
    """

    cdef Slots slots
    cdef int rank, size, sources, destinations
    cdef int blocks  # of the buffer that is read
    cdef list tasks, background
    cdef list natives
    cdef object comm, task, tags
    cdef list hot  # the last plan of each primitive and kind of call
    cdef dict plans
    cdef long long *counts  # of the send buffer, then of the receive buffer: datatypes, counts and displacements
    cdef int counted, room
    cdef list uses

    def __cinit__(
        self, Slots slots, int rank, int size, int sources, int destinations, list tasks, list background,
        list uses, comm, list natives, task, tags,
    ):
        self.slots, self.rank, self.size = slots, rank, size
        self.sources, self.destinations = sources, destinations
        self.tasks, self.background = tasks, background
        self.uses, self.comm, self.natives, self.task, self.tags = uses, comm, natives, task, tags
        self.hot, self.plans = [None] * (KINDS * len(uses)), {}
        self.room = 6 * max(size, sources, destinations)
        self.counts = <long long *>PyMem_Malloc(self.room * sizeof(long long))
        if self.counts == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.counts)

    def forget(self):
        """Drop all plans."""
        self.hot = [None] * (KINDS * len(self.uses))
        self.plans.clear()

    def run(self, int primitive, algorithm, sendbuf, recvbuf, op, root, recvcounts=None, size_t sent=0):
        """Run a blocking method by its plan; return False if there is none.

        `sent` is the address of the numbers of bytes to send to each rank, or 0 for whole messages.
        """
        cdef Buffer send, recv
        cdef Plan plan
        send.held = recv.held = False
        try:
            plan = self.plan(primitive, METHOD, algorithm, sendbuf, recvbuf, op, root, recvcounts, &send, &recv)
            if plan is None or (sent and (plan.run is None or plan.run.active)):
                return False
            return self.follow(plan, primitive, &send, &recv, sendbuf, recvbuf, op, root, recvcounts, sent)
        finally:
            release(&send)
            release(&recv)

    def call(self, int primitive, algorithm, sendbuf, recvbuf, op, root, recvcounts=None):
        """Run a blocking function by its plan and return its result; return `MISSED` if there is no plan."""
        cdef Buffer send, recv
        cdef Plan plan = self.plan(primitive, FUNCTION, algorithm, sendbuf, recvbuf, op, root, recvcounts, &send, &recv)
        if plan is None:
            return MISSED
        if plan.shape is not None:
            recvbuf = allocated(plan, &recv)
        if not self.follow(plan, primitive, &send, &recv, sendbuf, recvbuf, op, root, recvcounts):
            return MISSED
        return array_of(recvbuf)

    cdef bint follow(
        self, Plan plan, int primitive, Buffer *send, Buffer *recv, sendbuf, recvbuf, op, root, recvcounts, size_t sent=0
    ) except -1:
        """Run a blocking call; return False if that is not possible now."""
        if plan.program is not None:
            self.slots.run(plan.program, send.address, recv.address)
            return True
        if PyList_GET_SIZE(self.tasks):
            return False
        if plan.run is not None:
            plan.run.bind(<size_t>send.address, <size_t>recv.address, sent)
            try:
                plan.run.finish()
            except BaseException as error:
                if plan.run.broken_off:  # others may still write to the buffers
                    plan.prepared.ended_early(error, plan.run, sendbuf, recvbuf)
                raise
        elif plan.mpi is not None:
            plan.mpi.run(send.address, recv.address)
        elif self.suits_mpi(primitive, send, recv):
            self.native(primitive, self.natives[primitive], sendbuf, recvbuf, op, root, recvcounts)
        else:
            return False
        return True

    def start(self, int primitive, bint function, algorithm, sendbuf, recvbuf, op, root, recvcounts=None):
        """Start a nonblocking method or function by its plan, and return its task.

        Returns the request of MPI if the call is left to MPI, and `MISSED` if there is no plan.
        """
        cdef Buffer send, recv
        cdef int kind = LATER_FUNCTION if function else LATER_METHOD
        cdef Plan plan = self.plan(primitive, kind, algorithm, sendbuf, recvbuf, op, root, recvcounts, &send, &recv)
        if plan is None:
            return MISSED
        if plan.is_in_flight:
            if plan.shape is not None:
                recvbuf = allocated(plan, &recv)
            return self.launch(plan, &send, &recv, sendbuf, recvbuf, function)
        if PyList_GET_SIZE(self.tasks) or PyList_GET_SIZE(self.background):
            return MISSED
        if not self.suits_mpi(primitive, &send, &recv):
            return MISSED
        native = self.natives[primitive + len(self.uses)]
        return self.native(primitive, native, sendbuf, recvbuf, op, root, recvcounts)

    cdef object launch(self, Plan plan, Buffer *send, Buffer *recv, sendbuf, recvbuf, bint function):
        tag = next(self.tags)
        cdef Run run = plan.idle.take()
        if run is None:
            run = plan.prepared.bound(tag)
        run.tag = tag
        run.bind(<size_t>send.address, <size_t>recv.address)
        kept = array_of(sendbuf), array_of(recvbuf)
        cdef type kind = <type>self.task
        cdef RunInFlight task = kind.__new__(kind)  # without a tuple of arguments
        task.make(run, plan.prepared, self.tasks, plan.idle, kept, kept[1] if function else None)
        task.start()
        return task

    def remember(
        self, int primitive, int kind, algorithm, sendbuf, recvbuf, op, root, recvcounts, size_t sent, size_t received,
        prepared, find_runner, allocates
    ):
        """Keep a plan for calls like this one; do nothing if there is one, or if the front cannot read them.

        `kind` is METHOD, LATER_METHOD, FUNCTION or LATER_FUNCTION.  `sent` and `received` are the addresses where the
        uncached path found the buffers.  `prepared` is the call, and `find_runner` finds what runs others like
        it: see `pycoll.runtime.plans.runner`.  `allocates` is the array that the call has allocated as its receive buffer,
        or None.
        """
        cdef Plan plan = Plan()
        cdef int number = self.rank_of(root)
        try:
            if not self.accepts(
                primitive, kind, algorithm, sendbuf, recvbuf, op, number, recvcounts, &plan.send, &plan.recv
            ):
                return
        finally:  # a plan keeps nothing of the caller
            release(&plan.send)
            release(&plan.recv)
        plan.given = given_of(kind, sendbuf, recvbuf)
        key = self.key(primitive + kind * <int>len(self.uses), algorithm, &plan.send, &plan.recv, op, number, plan.given)
        if key in self.plans:
            return
        runner = find_runner(kind < FUNCTION and is_known(&plan.send) and is_known(&plan.recv))
        if runner is None:
            return
        for here, found in ((<size_t>plan.send.address, sent), (<size_t>plan.recv.address, received)):
            if runner != "native" and found and here != found and allocates is None:
                return
        plan.algorithm, plan.root, plan.op, plan.prepared = algorithm, number, op, prepared.anywhere
        plan.kept = datatypes_of(sendbuf), datatypes_of(recvbuf)
        plan.counts = (<char *>self.counts)[: self.counted * sizeof(long long)]
        if type(runner) is SlotCode:
            plan.program = runner
        elif type(runner) is Run:
            plan.run = runner
        elif runner == "core":
            plan.is_in_flight, plan.idle = True, Idle()
        elif runner != "native":
            plan.mpi = runner
        if allocates is not None:
            if not np.PyArray_CheckExact(sendbuf) or not np.PyArray_CheckExact(allocates):
                return
            plan.shape, plan.dtype = allocates.shape, allocates.dtype
        if len(self.plans) >= MOST_PLANS:
            self.forget()
        self.plans[key] = plan
        self.hot[primitive + kind * len(self.uses)] = plan

    cdef Plan plan(
        self, int primitive, int kind, algorithm, sendbuf, recvbuf, op, root, recvcounts, Buffer *send, Buffer *recv
    ):
        """Read the arguments and find the plan; None if there is none."""
        cdef int number = self.rank_of(root)
        if not self.accepts(primitive, kind, algorithm, sendbuf, recvbuf, op, number, recvcounts, send, recv):
            return None
        given = given_of(kind, sendbuf, recvbuf)
        return self.find(primitive + kind * <int>len(self.uses), algorithm, send, recv, op, number, given)

    cdef bint accepts(
        self, int primitive, int kind, algorithm, sendbuf, recvbuf, op, int root, recvcounts, Buffer *send, Buffer *recv
    ) except -1:
        """Read the arguments; return False if the uncached path must read them, for example if the buffers overlap."""
        if (algorithm is not None and type(algorithm) is not str) or (op is not None and not op):
            return False
        if not self.read(primitive, kind, sendbuf, recvbuf, root, recvcounts, send, recv):
            return False
        if kind >= FUNCTION and recv.kind == ABSENT and recvbuf is not None:
            return False
        if send.kind < MEMORY or recv.kind < MEMORY:
            return True
        return send.address >= recv.address + recv.nbytes or recv.address >= send.address + send.nbytes

    cdef bint suits_mpi(self, int primitive, Buffer *send, Buffer *recv):
        """Whether mpi4py reduces these buffers: it refuses two datatypes, even of the same representation."""
        several = send.kind >= MEMORY and recv.kind >= MEMORY and send.datatype != recv.datatype
        return not (self.uses[primitive] & REDUCES and several)

    cdef object native(self, int primitive, native, sendbuf, recvbuf, op, root, recvcounts):
        """Call a collective of MPI with the arguments that it takes."""
        cdef int about = self.uses[primitive]
        if recvcounts is not None:
            return native(self.comm, sendbuf, recvbuf, recvcounts, op)
        if about & REDUCES and about & ROOTED:
            return native(self.comm, sendbuf, recvbuf, op, root)
        if about & REDUCES:
            return native(self.comm, sendbuf, recvbuf, op)
        if about & SENDS:
            return native(self.comm, sendbuf, recvbuf, root) if about & ROOTED else native(self.comm, sendbuf, recvbuf)
        return native(self.comm, recvbuf, root) if about & RECEIVES else native(self.comm)

    cdef int rank_of(self, root) except -2:
        """The number of a root; -1 if it is not a rank."""
        if not is_integer(root) or not 0 <= root < self.size:
            return -1
        return <int>root

    cdef tuple key(self, int primitive, algorithm, Buffer *send, Buffer *recv, op, int root, given):
        return (
            algorithm,
            (primitive, root, <size_t><void *>op, send.kind, send.nbytes, send.type, recv.kind, recv.nbytes, recv.type),
            (send.datatype, send.derived, send.count, recv.datatype, recv.derived, recv.count),
            (<char *>self.counts)[: self.counted * sizeof(long long)],
            given,
        )

    cdef Plan find(self, int primitive, algorithm, Buffer *send, Buffer *recv, op, int root, given):
        cdef Plan plan = <Plan>self.hot[primitive]
        if plan is not None and (
            plan.recv.nbytes == recv.nbytes and plan.recv.type == recv.type and plan.recv.kind == recv.kind
            and plan.send.nbytes == send.nbytes and plan.send.type == send.type and plan.send.kind == send.kind
            and plan.send.datatype == send.datatype and plan.send.derived == send.derived
            and plan.recv.datatype == recv.datatype and plan.recv.derived == recv.derived
            and plan.send.count == send.count and plan.recv.count == recv.count
            and plan.op is op and plan.root == root and plan.algorithm is algorithm
            and len(plan.counts) == self.counted * sizeof(long long)
            and memcmp(<char *>plan.counts, self.counts, self.counted * sizeof(long long)) == 0
            and (plan.given is given or plan.given == given)
        ):
            return plan
        plan = <Plan>self.plans.get(self.key(primitive, algorithm, send, recv, op, root, given))
        if plan is not None:
            self.hot[primitive] = plan
        return plan

    cdef bint read(
        self, int primitive, int kind, sendbuf, recvbuf, int root, recvcounts, Buffer *send, Buffer *recv
    ) except -1:
        """Read the buffers that matter on this rank; return False if the uncached path must read the call."""
        cdef int about = self.uses[primitive]
        cdef bint several, writable
        if root < 0:
            return False
        if kind >= FUNCTION and not about & (VECTOR_SENT | VECTOR_RECEIVED) and (is_list(sendbuf) or is_list(recvbuf)):
            return False  # a list of arrays
        self.counted = 0
        self.blocks = self.size
        send.kind = recv.kind = ABSENT
        send.address = recv.address = NULL
        send.nbytes = recv.nbytes = 0
        send.type = recv.type = send.datatype = recv.datatype = 0
        send.derived = recv.derived = 0
        send.count = recv.count = -1
        if recvcounts is not None and not self.read_counts(recvcounts):
            return False
        if about & SENDS and not (about & SENDS_AT_ROOT and self.rank != root):
            several = about & TAKES_ALL and recvcounts is None
            if about & NEAR:
                self.blocks = self.destinations
            if not self.read_buffer(kind, about, sendbuf, False, about & VECTOR_SENT, several, send):
                return False
        if about & RECEIVES and not (about & RECEIVES_AT_ROOT and self.rank != root):
            writable = not (about & KEEPS_AT_ROOT and self.rank == root)
            if about & NEAR:
                self.blocks = self.sources
            several = (about & GIVES_ALL or (about & TAKES_ALL and send.kind == IN_PLACE)) and recvcounts is None
            if not self.read_buffer(kind, about, recvbuf, writable, about & VECTOR_RECEIVED, several, recv):
                return False
        return True

    cdef bint read_buffer(
        self, int kind, int about, spec, bint writable, bint vector, bint several, Buffer *to
    ) except -1:
        cdef Py_ssize_t n, type_size
        cdef int i
        cdef object last
        if is_array(kind, spec):
            return read_array(kind, <np.ndarray>spec, writable, to) and not (about & REDUCES and to.type < 0)
        if spec is None:
            return True
        if <PyObject *>spec == in_place_constant:
            to.kind = IN_PLACE
            return True
        if type(spec) is not list and type(spec) is not tuple:
            return read_memory(kind, spec, writable, to)
        n = len(spec)
        if not 2 <= n <= 4:
            return False
        last = spec[n - 1]
        if is_array(kind, spec[0]):
            if not read_array(kind, <np.ndarray>spec[0], writable, to):
                return False
        elif not read_memory(kind, spec[0], writable, to):
            return False
        if about & TYPES and kind < FUNCTION:
            return is_list(last) and self.read_types(spec, n, to)
        type_size = to.itemsize
        for i in range(datatype_count):
            if datatypes[i] == <PyObject *>last:
                if types[i] != to.type:
                    return False
                to.datatype = i + 1
                n -= 1
                break
        if not to.datatype and type(last) is datatype_class and last:
            to.datatype, to.derived = DERIVED, <size_t><PyObject *>last
            n -= 1
        elif type(last) is str and len(last) == 1 and last < "\x80":
            if formats[<int>ord(last)] != to.type + 1:
                return False
            to.datatype = MOST_DATATYPES + <int>ord(last)
            n -= 1
        if about & REDUCES and (not to.derived if to.type < 0 else to.derived and <size_t>to.address % ALIGNMENT):
            return False
        if n == 1:
            return True
        if n == 4:  # of what is no datatype
            return False
        if vector:
            to.kind = PLACED
            if n == 3:  # the datatype is last
                return to.datatype and self.read_counts(spec[1]) and self.read_counts(spec[2])
            if type(spec[1]) is tuple and len(spec[1]) == 2:
                return self.read_counts(spec[1][0]) and self.read_counts(spec[1][1])
            to.kind = COUNTED
            return type(spec[1]) is not tuple and self.read_counts(spec[1])
        if n != 2 or not is_integer(spec[1]):
            return False
        if to.derived:
            if not 0 <= spec[1] <= to.nbytes:
                return False
            to.count = spec[1]
            return True
        if several:  # the count is that of a block
            type_size *= self.blocks
        if type_size == 0 or not 0 <= spec[1] <= to.nbytes // type_size:
            return False
        to.nbytes = <Py_ssize_t>spec[1] * type_size
        return True

    cdef bint read_types(self, spec, Py_ssize_t n, Buffer *to) except -1:
        """Read the datatypes, counts and displacements of blocks; which fit in the buffer if they did before."""
        types = spec[n - 1]
        if len(types) != self.blocks or self.counted + self.blocks > self.room:
            return False
        for datatype in types:
            if type(datatype) is not datatype_class or not datatype:
                return False
            self.counts[self.counted] = <long long><size_t><PyObject *>datatype
            self.counted += 1
        to.kind = TYPED
        if n == 2:
            return True
        if n == 3 and not (is_list(spec[1]) and len(spec[1]) == 2):
            return False
        counts, displs = (spec[1], spec[2]) if n == 4 else spec[1]
        to.kind = PLACED
        return self.read_counts(counts) and self.read_counts(displs)

    cdef bint read_counts(self, counts) except -1:
        """Append counts or displacements, one integer for each block; nothing else is read here."""
        cdef long long *to = self.counts + self.counted
        cdef int i
        if type(counts) is list or type(counts) is tuple:
            for one in counts:
                if not is_integer(one):
                    return False
        else:
            if not np.PyArray_CheckExact(counts) or (<np.ndarray>counts).ndim != 1 or not np.PyArray_ISINTEGER(<np.ndarray>counts):
                return False
        if len(counts) != self.blocks or self.counted + self.blocks > self.room:
            return False
        try:
            for i in range(self.blocks):
                to[i] = counts[i]
        except OverflowError:
            return False
        self.counted += self.blocks
        return True


cdef inline bint is_list(spec) noexcept:
    return type(spec) is list or type(spec) is tuple


cdef inline bint is_integer(number):
    return type(number) is int or isinstance(number, integer)


cdef inline bint is_array(int kind, spec):
    """Whether this is an array; methods also take those of subclasses that only view memory in another way."""
    return np.PyArray_CheckExact(spec) or (kind < FUNCTION and np.PyArray_Check(spec) and not is_more_than_memory(spec))


cdef inline object array_of(spec):
    """The array of a buffer specification."""
    return spec[0] if is_list(spec) else spec


cdef tuple datatypes_of(spec):
    """The datatypes of a buffer specification."""
    last = spec[len(spec) - 1] if is_list(spec) and spec else None
    return tuple(last) if is_list(last) else (last,) if type(last) is datatype_class else ()


cdef object given_of(int kind, sendbuf, recvbuf):
    """What determines the receive buffer that a function allocates; None if it is given."""
    if kind < FUNCTION or recvbuf is not None or not np.PyArray_CheckExact(sendbuf):
        return None
    return (<object>sendbuf).shape, (<object>sendbuf).dtype


cdef object allocated(Plan plan, Buffer *recv):
    """A new receive buffer."""
    array = empty(plan.shape, plan.dtype)
    recv.address = <char *>np.PyArray_DATA(<np.ndarray>array)
    return array


cdef inline void release(Buffer *buffer) noexcept:
    if buffer.held:
        PyBuffer_Release(&buffer.view)
        buffer.held = False


cdef inline bint is_known(Buffer *buffer) noexcept:
    """Whether mpi4py knows the dtype."""
    return 0 <= buffer.type < np.NPY_OBJECT


cdef inline bint read_array(int kind, np.ndarray array, bint writable, Buffer *to) except -1:
    """Read an array; methods take it in the order of its memory, and move elements of any kind."""
    cdef int type_num = np.PyArray_TYPE(array)
    to.itemsize = np.PyArray_ITEMSIZE(array)
    if type_num >= np.NPY_OBJECT and type_num != HALF and not USER_DEFINED <= type_num < PARAMETRIC:
        if kind >= FUNCTION or not to.itemsize or (<object>array).dtype.hasobject:
            return False
        type_num = -(type_num + (<int>to.itemsize << 8))
    if not (np.PyArray_IS_C_CONTIGUOUS(array) or (kind < FUNCTION and np.PyArray_IS_F_CONTIGUOUS(array))):
        return False
    if not (np.PyArray_ISBEHAVED(array) if writable else np.PyArray_ISBEHAVED_RO(array)):
        return False
    to.address, to.nbytes = <char *>np.PyArray_DATA(array), np.PyArray_NBYTES(array)
    to.type, to.kind = canonical(type_num), MEMORY
    return True


cdef bint read_memory(int kind, spec, bint writable, Buffer *to) except -1:
    """Read a tensor of PyTorch, or, in blocking methods, an object with the buffer protocol of a known type."""
    global tensor_type
    cdef Py_buffer *view = &to.view
    if tensor_type is None and "torch" in modules:
        tensor_type = getattr(modules["torch"], "Tensor", None)
    for name in [name for name in later_types if name in modules]:
        plain_types.add(getattr(modules[name], later_types.pop(name)))
    cdef object of = type(spec)
    if of is tensor_type:
        try:
            array = spec.numpy()
        except (RuntimeError, TypeError):  # on a GPU, or it has a gradient
            return False
        return read_array(kind, <np.ndarray>array, writable, to)
    if kind != METHOD or of not in plain_types:
        return False
    try:
        PyObject_GetBuffer(spec, view, PyBUF_ANY_CONTIGUOUS | PyBUF_FORMAT | (PyBUF_WRITABLE if writable else 0))
    except (BufferError, ValueError):
        return False
    cdef const char *format = <const char *>view.format
    cdef int found = 0
    if format[0] and not format[1]:
        found = formats[format[0] & 127]
    elif format[0] == b"Z" and format[1] and not format[2]:  # complex numbers, which NumPy writes in upper case
        found = formats[(format[1] & 127) - 32]
    to.address, to.nbytes = <char *>view.buf, view.len
    to.type, to.itemsize, to.kind = found - 1, view.itemsize, MEMORY
    to.held = True
    return found and <size_t>to.address % <size_t>to.itemsize == 0
