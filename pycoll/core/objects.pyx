# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Collectives of Python objects: the lower-case methods of a communicator.

Ranks exchange entries.  Values (`pycoll.core.values`) are encoded.  Other objects are pickles.  What does not fit in an
entry is a parcel with segments.  On a host, entries travel in slots: each call is one turn, and readers copy segments
from the memory of the sender, which waits until they have left the turn.  Between hosts, each call is one collective of
MPI or of pycoll, and segments follow in others.  No Python code runs meanwhile, so ranks pack their objects before, and
unpack them after it.
"""

cimport numpy as np
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.number cimport PyNumber_Add
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcmp, memcpy

from .messages cimport copy_from_process
from .slots cimport LEFT, MEDIUM, READY, Slots
from .values cimport Seen, decoded, encoded

from operator import index

from mpi4py import MPI
from numpy import intp, ndarray, uint8, zeros

from ..base.parcels import LONG_ARRAY, LONG_VALUE, PICKLER, Parcel, failed, has_table, is_plain, long_value, one_for_each
from ..base.parcels import packed, pickled, table_rows, unpacked, wrapped
from ..compiler.program import SLOTS

cdef extern from "copies.h" nogil:
    void copy(char *to, char *source, size_t size)
    void copy_for_others(char *to, char *source, size_t size)

np.import_array()

cdef enum:  # kinds of entries; ARRAYS + i is a parcel of a long array that operation i of MPI combines
    VALUE, PICKLE, PARCEL, ARRAYS

cdef struct Entry:
    int32_t kind
    int32_t segments  # of a parcel, if their addresses are in the content
    int32_t size  # of the content in bytes
    int32_t needed  # bytes of an entry that has room for the whole object
    int64_t content[1]  # of a parcel, the addresses and sizes of its segments, and what it sends first

cdef enum:
    HEAD = 16  # bytes of an entry before its content
    LEAST = 64  # the least bytes of an entry
    SENT = 128  # bytes of an entry in a message, at first
    MOST_SENT = 4608  # the most later, for objects of 4 KiB and what is said about them
    MOST_GATHERED = 1 << 16  # the same for the entries of all ranks
    STEP = 64  # bytes between two such lengths
    MARGIN = 34  # bytes that a value leaves free while it is encoded
    MOST_ENCODED = 1 << 18  # bytes of a value; the buffers of longer objects are sent from their own memory
    FEW = 100  # strings, bytes and tuples in a long value
    EVERYTHING = 1 << 30
    ALL = -1  # ranks
    OBJECTS = 1 << 30  # in the number of a call
cdef enum:  # what a collective does with objects: bits
    ROOT_SENDS = 1  # only the root sends
    ROOT_READS = 2  # only the root reads
    EACH = 4  # each rank has an object for each rank
    COMBINES = 8
    KINDS = 16
    BCAST = ROOT_SENDS
    SCATTER = ROOT_SENDS | EACH
    GATHER = ROOT_READS
    ALLGATHER = 0
    ALLTOALL = EACH
    REDUCE = ROOT_READS | COMBINES
    ALLREDUCE = COMBINES
cdef dict NAMES = {BCAST: "bcast", SCATTER: "scatter", GATHER: "gather", ALLGATHER: "allgather", ALLTOALL: "alltoall"}
cdef object ADD = MPI.SUM
cdef object NOTHING = Parcel(b"", [])
BEGUN = object()
"""Where the result of a method will be, while it runs."""


cdef class Sealed:
    """A received object that is not a value: its pickle, or a parcel."""

    cdef bytes wire
    cdef list segments  # of a parcel

    cdef object opened(self):
        cdef char *at
        if self.segments is None:
            return PICKLER.loads(memoryview(self.wire))
        if self.wire[:1] == LONG_VALUE:
            at = <char *>np.PyArray_DATA(<np.ndarray>self.segments[0])
            return decoded(&at)
        return unpacked(self.wire, self.segments)


cdef object get(Entry *entry, int process):
    """The object of an entry; `process` is that of its rank, or 0 if this is the own one."""
    cdef char *content = <char *>entry.content
    cdef Py_ssize_t start = 16 * entry.segments
    cdef Sealed sealed
    cdef int i
    if entry.kind == VALUE:
        return decoded(&content)
    sealed = Sealed()
    sealed.wire = PyBytes_FromStringAndSize(content + start, entry.size - start)
    if entry.kind >= PARCEL:
        sealed.segments = []
        for i in range(entry.segments):
            sealed.segments.append(copied(process, entry.content[2 * i], entry.content[2 * i + 1]))
        if sealed.segments and has_table(sealed.wire):
            sealed.segments = [copied(process, at, size) for at, size in table_rows(sealed.segments[0])]
    return sealed


cdef object copied(int process, uint64_t start, np.npy_intp size):
    """An array of bytes from the memory of a process, or of this process if that is 0."""
    cdef np.ndarray array = np.PyArray_SimpleNew(1, &size, np.NPY_UINT8)
    cdef char *to = <char *>np.PyArray_DATA(array)
    cdef bint fine = True
    with nogil:
        if process:
            fine = copy_from_process(process, to, start, size)
        else:
            copy(to, <char *>start, size)
    if not fine:
        raise OSError(f"the memory of process {process} cannot be read")
    return array


cdef bint is_same(Entry *one, Entry *other):
    """Whether two entries are of arrays of one dtype and shape, which one operation combines."""
    cdef Py_ssize_t size = one.size - 16 * one.segments
    if one.kind < ARRAYS or other.kind != one.kind or other.size - 16 * other.segments != size:
        return False
    return memcmp(one.content + 2 * one.segments, other.content + 2 * other.segments, size) == 0


cdef class ObjectCollectives:
    """The collectives of objects on a communicator.

    Parameters
    ----------
    rank, size : int
        Those of the communicator.
    others : object
        Has the same methods, for calls with an algorithm, or on an unusable communicator.  Its method `combined` ends a
        reduction, and `combined_arrays` runs one of long arrays if `combines` says so.
    """

    cdef object others
    cdef int rank, size
    cdef np.ndarray memory  # of the entries of this rank that it sends next, which begin at
    cdef char *packed
    cdef Py_ssize_t held, least  # bytes of this memory, and of it at first
    cdef dict kept  # their parcels
    cdef Py_ssize_t whole, room  # of an entry, and of one if a rank has one for each of the others
    cdef bint has_addresses  # whether the entry of a parcel has those of its segments
    cdef bint same_arrays  # in the last call
    cdef object error  # for which this rank sends or receives no object

    def __cinit__(self, int rank, int size, others, *more):
        self.rank, self.size, self.others = rank, size, others
        self.kept = {}

    cdef bint unusable(self) noexcept:
        """Whether the communicator is known to be unusable."""
        return False

    cdef int begin_call(self, int what) except -1:
        """Begin a call, with memory for the least entries; forget what is left of one that has ended early."""
        self.error = None
        if self.kept:
            self.kept = {}
        return self.reserve(self.least)

    cdef list exchanged(self, int what, int count, int root, bint arrays=False):
        """Exchange entries, and return those that this rank reads; None if it reads none.

        This rank has packed `count` entries: none, one for all ranks, or one for each.  With `arrays`, segments are not
        copied if all ranks have the same kind of arrays; then `same_arrays` is true.
        """
        raise NotImplementedError

    cdef int end(self) except -1:
        """End a call, whose entries have been read."""
        return 0

    def bcast(self, obj, root=0, algorithm=None):
        """Give the object of the root to all ranks."""
        cdef int source = self.root_of(root, algorithm)
        if source < 0:
            return self.others.bcast(obj, root, algorithm)
        cdef int count = self.pack(BCAST, obj) if self.rank == source else self.begin_call(BCAST)
        return self.opened(self.exchanged(BCAST, count, source))[0]

    def scatter(self, objs, root=0, algorithm=None):
        """Give each rank an object of the root."""
        cdef int source = self.root_of(root, algorithm)
        if source < 0 or self.room < LEAST:
            return self.others.scatter(objs, root, algorithm)
        cdef int count = self.pack_all(SCATTER, objs) if self.rank == source else self.begin_call(SCATTER)
        return self.opened(self.exchanged(SCATTER, count, source))[0]

    def gather(self, obj, root=0, algorithm=None):
        """Give the objects of all ranks to the root."""
        cdef int to = self.root_of(root, algorithm)
        if to < 0:
            return self.others.gather(obj, root, algorithm)
        return self.opened(self.exchanged(GATHER, self.pack(GATHER, obj), to))

    def allgather(self, obj, algorithm=None):
        """Give the objects of all ranks to all ranks."""
        if self.is_for_others(algorithm):
            return self.others.allgather(obj, algorithm)
        return self.opened(self.exchanged(ALLGATHER, self.pack(ALLGATHER, obj), 0))

    def alltoall(self, objs, algorithm=None):
        """Give each rank an object of each rank."""
        if self.is_for_others(algorithm) or self.room < LEAST:
            return self.others.alltoall(objs, algorithm)
        return self.opened(self.exchanged(ALLTOALL, self.pack_all(ALLTOALL, objs), 0))

    def reduce(self, obj, op, root=0, algorithm=None):
        """Combine the objects of all ranks at the root."""
        cdef int to = self.root_of(root, algorithm)
        if to < 0 or not callable(op):
            return self.others.reduce(obj, op, root, algorithm)
        return self.combined("reduce", obj, op, to)

    def allreduce(self, obj, op, algorithm=None):
        """Combine the objects of all ranks on all ranks."""
        if self.is_for_others(algorithm) or not callable(op):
            return self.others.allreduce(obj, op, algorithm)
        if op is not ADD and not self.others.is_predefined(op):
            return self.others.reduced_and_sent(self, obj, op)
        return self.combined("allreduce", obj, op, 0)

    def scan(self, obj, op, algorithm=None):
        """Combine the objects of the ranks up to this one."""
        if self.is_for_others(algorithm) or not callable(op):
            return self.others.scan(obj, op, algorithm)
        return self.combined("scan", obj, op, 0)

    def exscan(self, obj, op, algorithm=None):
        """Combine the objects of the ranks before this one."""
        if self.is_for_others(algorithm) or not callable(op):
            return self.others.exscan(obj, op, algorithm)
        return self.combined("exscan", obj, op, 0)

    cdef object combined(self, str name, obj, op, int root):
        self.pack(ALLREDUCE, obj)
        if self.kept and self.kept[0].wire[:1] == LONG_ARRAY:  # a second collective may follow
            return self.others.in_python(self.array_combined, name, self.kept[0], op, root)
        return self.packed_combined(name, op, root)

    def array_combined(self, str name, array, op, int root):
        """Combine the long array that is packed with those of the other ranks, as buffers if they are alike."""
        try:
            self.outgoing(0, 0).kind = PARCEL + 1 + <int>self.others.combines(op, array)
        except BaseException as error:
            self.fail(error, 0, 0)
        result = self.packed_combined(name, op, root, self.outgoing(0, 0).kind >= ARRAYS)
        return self.others.combined_arrays(name, array, op, root) if self.same_arrays else result

    cdef object packed_combined(self, str name, op, int root, bint arrays=False):
        """Combine the object that is packed with those of the other ranks; do nothing if all have such arrays."""
        cdef list values = self.opened(self.exchanged(REDUCE if name == "reduce" else ALLREDUCE, 1, root, arrays))
        if values is None:
            return None
        if op is ADD:
            if name == "allreduce" or name == "reduce":
                return total(values)
            return sum_up_to(values, self.rank, name == "exscan")
        return self.others.combined(name, values, op)

    cdef inline bint is_for_others(self, algorithm) noexcept:
        """Whether the others run this call: it names an algorithm, or the communicator is unusable."""
        return algorithm is not None or self.unusable()

    cdef int root_of(self, root, algorithm) except -2:
        """The number of a root; -1 if the others run this call."""
        if self.is_for_others(algorithm):
            return -1
        try:
            root = index(root)
        except TypeError:
            return -1
        return <int>root if 0 <= root < self.size else -1

    cdef inline Entry *outgoing(self, int which, Py_ssize_t distance) noexcept:
        return <Entry *>(self.packed + which * distance)

    cdef int pack(self, int what, obj) except -1:
        """Make an entry of an object; if that fails, the entry says why.

        Pickling may call other collectives, and the length of entries depends on the last one.
        """
        self.begin_call(what)
        try:
            if not self.encode(obj, 0, 0) and not (self.grew() and self.encode(obj, 0, 0)):
                found = unsealed(obj)
                self.begin_call(what)
                self.write(self.sealed(obj, found, self.whole), 0, 0)
        except BaseException as error:
            self.begin_call(what)
            self.reserve(self.whole)
            self.fail(error, 0, 0)
        return 1

    cdef int pack_all(self, int what, objs) except -1:
        """Make an entry for each rank, and return how many."""
        cdef int other
        cdef list made = []
        cdef bint again, is_value
        self.begin_call(what)
        self.reserve(self.size * self.room)
        try:
            objs = one_for_each(objs, self.size)
            for other in range(self.size):
                is_value = self.encode(objs[other], other, self.room)
                made.append(None if is_value else self.sealed(objs[other], unsealed(objs[other]), self.room))
            again = made.count(None) < self.size
            while again:  # pickling may have called other collectives, or changed other objects
                again = False
                for other in range(self.size):
                    if made[other] is not None:
                        self.write(made[other], other, self.room)
                    elif not self.encode(objs[other], other, self.room):
                        made[other], again = self.sealed(objs[other], unsealed(objs[other]), self.room), True
        except BaseException as error:
            for other in range(self.size):
                self.fail(error, other, self.room)
        return self.size

    cdef bint encode(self, obj, int which, Py_ssize_t distance) except -1:
        """Make an entry of a value; return whether the object is one."""
        cdef Entry *entry = self.outgoing(which, distance)
        cdef char *content = <char *>entry.content
        cdef Seen seen
        seen.repeatable, seen.count, entry.segments = EVERYTHING, 0, 0
        cdef char *end = encoded(obj, content, content + (distance or min(self.held, self.whole)) - HEAD, &seen, 0)
        if end == NULL:
            return False
        entry.kind, entry.size = VALUE, end - content
        entry.needed = HEAD + entry.size + MARGIN
        return True

    cdef object sealed(self, obj, found, Py_ssize_t size):
        """The pickle of an object if it is short, else its parcel; `found` is what `unsealed` returned."""
        if type(found) is ndarray:
            return long_value(found)
        cdef Py_ssize_t room = size - HEAD
        cdef Py_ssize_t beside = room // 3 if self.has_addresses else room  # beside the addresses and sizes of segments
        if found is None:
            return packed(obj, beside)
        data, buffers = found
        return wrapped(obj, data, buffers, beside) if buffers or len(data) > room else data

    cdef int write(self, made, int which, Py_ssize_t distance) except -1:
        """Make an entry of a pickle or a parcel, whose segments are kept until their readers have them."""
        cdef Entry *entry = self.outgoing(which, distance)
        cdef bint is_parcel = type(made) is Parcel
        cdef bytes wire = made.wire if is_parcel else made
        cdef list segments = (made.split()[0] or made.segments) if is_parcel and self.has_addresses else []
        cdef np.ndarray array
        cdef int i
        entry.kind, entry.segments = PARCEL if is_parcel else PICKLE, len(segments)
        entry.size = 16 * entry.segments + PyBytes_GET_SIZE(wire)
        for i in range(entry.segments):
            array = segments[i]
            entry.content[2 * i], entry.content[2 * i + 1] = <int64_t>np.PyArray_DATA(array), np.PyArray_NBYTES(array)
        entry.needed = HEAD + entry.size
        if is_parcel and made.segments:
            entry.needed = min(<Py_ssize_t>MOST_SENT + 1, SENT + sum([each.nbytes for each in made.segments]))
        memcpy(entry.content + 2 * entry.segments, PyBytes_AS_STRING(wire), PyBytes_GET_SIZE(wire))
        if is_parcel:
            self.kept[which] = made
        return 0

    cdef int reserve(self, Py_ssize_t size) except -1:
        """Have memory for entries of so many bytes."""
        if size > self.held:
            self.memory = zeros(size, uint8)
            self.packed, self.held = <char *>np.PyArray_DATA(self.memory), size
        return 0

    cdef bint grew(self) except -1:
        """Have memory for the longest entry; whether there was less."""
        cdef bint less = self.held < self.whole
        self.reserve(self.whole)
        return less

    cdef int fail(self, error, int which, Py_ssize_t distance) except -1:
        """Make an entry that says why there is no object."""
        while True:
            try:
                parcel = failed(self.rank, error, (distance or self.whole) - HEAD)
                break
            except BaseException as another:  # of a signal handler
                error = another
        self.error = error
        return self.write(parcel, which, distance)

    cdef list opened(self, list found):
        """Unpack entries, or raise the error for which this rank has sent or received no object."""
        cdef Py_ssize_t i
        try:
            self.end()
        finally:
            error, self.error = self.error, None
            if self.kept:
                self.kept = {}
        if error is not None:
            raise error
        if found is not None:
            for i in range(len(found)):
                if type(found[i]) is Sealed:
                    found[i] = (<Sealed>found[i]).opened()
        return found


cdef object unsealed(obj):
    """A value as an array of bytes, or the pickle of an object and its long buffers; None for a long array, sent as it is."""
    if np.PyArray_CheckExact(obj) and is_plain(obj):
        return None
    value = encoded_value(obj)
    return pickled(obj) if value is None else value


cdef object encoded_value(obj):
    """A value as an array of bytes; None if the object is no value, or so long that its buffers are better not copied."""
    cdef np.npy_intp size = max(0, min(MOST_ENCODED, PICKLER.THRESHOLD))
    cdef np.ndarray array = np.PyArray_SimpleNew(1, &size, np.NPY_UINT8)
    cdef char *start = <char *>np.PyArray_DATA(array)
    cdef Seen seen
    seen.repeatable, seen.count = FEW, 0
    cdef char *end = encoded(obj, start, start + size, &seen, 0)
    if end == NULL:
        return None
    array.resize(end - start, refcheck=False)
    return array


cdef object total(list values):
    """The sum of values, in the tree of mpi4py."""
    cdef Py_ssize_t step = 1, left, count = len(values)
    while step < count:
        left = 0
        while left < count - step:  # Cython makes an object of a range with such a step
            values[left] = PyNumber_Add(values[left], values[left + step])  # in Cython 3.3.1, 0 + -0.0 is -0.0
            left += 2 * step
        step *= 2
    return values[0]


cdef object sum_up_to(list values, int rank, bint exclusive):
    """The sum of the values of the ranks up to this one, or before it, as mpi4py computes it by recursive doubling."""
    cdef int bit, end
    result = None if exclusive else values[rank]
    for bit in range(31):
        if rank >> bit & 1:
            end = rank >> bit << bit
            block = total(values[end - (1 << bit) : end])
            result = block if exclusive and end == rank else PyNumber_Add(block, result)
    return result


cdef class ObjectSlots(ObjectCollectives):
    """The collectives of objects in slots.

    Parameters
    ----------
    rank, size, others
        See `ObjectCollectives`.
    slots : Slots
        Those of the communicator.
    processes : list of int
        The process of each rank.
    """

    cdef Slots slots
    cdef list processes
    cdef int unread  # the rank whose memory could not be read, or ALL

    def __cinit__(self, int rank, int size, others, Slots slots, list processes):
        self.slots, self.processes, self.unread = slots, processes, ALL
        self.processes[rank] = 0
        self.whole = SLOTS[MEDIUM][0]
        self.room, self.has_addresses = self.whole // size // 8 * 8, True
        self.least = SENT  # enough for numbers, and many communicators send nothing else

    cdef bint unusable(self) noexcept:
        return self.slots.failed

    cdef list exchanged(self, int what, int count, int root, bint arrays=False):
        """Exchange entries in a turn."""
        cdef Py_ssize_t distance = self.room if what & EACH else 0
        cdef np.npy_intp mine = self.rank * distance
        cdef int other, first = root if what & ROOT_SENDS else 0, end = root + 1 if what & ROOT_SENDS else self.size
        cdef int reader = root if what & ROOT_READS else ALL
        cdef bint reads = reader == ALL or reader == self.rank
        cdef list found = None
        self.slots.begin_turn(MEDIUM, OBJECTS | what << 24 | root)
        if count:
            for other in range(count):
                copy_for_others(
                    self.slots.slot_of(self.rank) + other * distance, <char *>self.outgoing(other, distance),
                    HEAD + self.outgoing(other, distance).size,
                )
            self.slots.post(READY)
        self.same_arrays = arrays
        if arrays or reads:
            for other in range(first, end):
                if other != self.rank:
                    self.slots.wait_for_slot(other)
                if self.same_arrays:
                    self.same_arrays = is_same(self.outgoing(0, 0), <Entry *>(self.slots.slot_of(other) + mine))
        if reads and not self.same_arrays:
            found = []
            for other in range(first, end):
                found.append(self.entry(self.slots.slot_of(other) + mine, other))
        self.slots.end_turn()
        if self.kept and not self.same_arrays:
            for other in range(self.size):
                if other != self.rank and (reader == ALL or other == reader):
                    if self.outgoing(other, distance).segments:
                        self.slots.wait(other, LEFT, self.slots.turn)
        return found

    cdef object entry(self, char *at, int rank):
        """Read an entry; if that fails, the rank takes part to the end all the same."""
        try:
            return get(<Entry *>at, self.processes[rank])
        except Exception as error:
            if self.error is None:
                self.error = error
            if type(error) is OSError:
                self.unread = rank

    cdef int end(self) except -1:
        if self.unread != ALL:
            rank, self.unread = self.unread, ALL
            self.error = self.others.failure(rank) or self.error
        return self.slots.end_run()


cdef class ObjectMessages(ObjectCollectives):
    """The collectives of objects in messages.

    Where all ranks read the same entries, these have 128 bytes, and become longer, so that objects need one collective if
    the last two calls had objects of this length.  Other entries go straight to their readers, which do not have to know
    how long they are.

    Parameters
    ----------
    rank, size, others
        See `ObjectCollectives`.  The method `exchange` of `others` runs a collective of entries for which the front has no
        plan, and `follow` those of the segments.  Both set their first argument.
    channel : object
        The channel of the communicator; it has the front.
    numbers : dict
        The numbers of the primitives for the front.
    """

    cdef object front, channel
    cdef dict numbers
    cdef np.ndarray arrived  # the memory of the entries that this rank receives
    cdef Py_ssize_t needed[KINDS]  # bytes of an entry that the last collective of each kind needed
    cdef Py_ssize_t expected[KINDS]  # bytes of an entry in the next one
    cdef np.ndarray sent  # bytes of the entry for each rank, if entries go straight there

    def __cinit__(self, int rank, int size, others, channel, dict numbers):
        self.front, self.channel, self.numbers = channel.front, channel, {what: numbers[name, False] for what, name in NAMES.items()}
        cdef int what
        self.room = max(<Py_ssize_t>SENT, min(<Py_ssize_t>MOST_SENT, MOST_GATHERED // size // STEP * STEP))
        self.least = SENT
        for what in range(KINDS):
            self.expected[what] = self.room if goes_straight(what) else SENT
        self.sent = zeros(size, intp)

    cdef int begin_call(self, int what) except -1:
        ObjectCollectives.begin_call(self, what)
        self.whole = self.expected[what]
        return self.reserve(self.whole)

    cdef int expect(self, int what, Py_ssize_t needed) except -1:
        """Choose the length of entries for the next call of this kind: the shorter one that the last two calls needed."""
        cdef Py_ssize_t both = min(self.needed[what], needed)
        cdef Py_ssize_t most = MOST_SENT if what == BCAST else min(<Py_ssize_t>MOST_SENT, MOST_GATHERED // self.size)
        both = (both + STEP - 1) // STEP * STEP if both > SENT else SENT
        self.needed[what], self.expected[what] = needed, both if both <= most else SENT
        return 0

    cdef list exchanged(self, int what, int count, int root, bint arrays=False):
        """Exchange entries in one collective; segments follow in others."""
        cdef bint reads = not what & ROOT_READS or root == self.rank
        cdef int collective = ALLGATHER if what & COMBINES else what
        cdef int other, end = 1 if what & ROOT_SENDS else self.size
        cdef list found = []
        cdef Py_ssize_t needed = 0, each = self.room if what & EACH else self.whole
        cdef char *entries = NULL
        cdef np.npy_intp *sizes
        if self.arrived is None or self.arrived.size < self.size * each:
            self.arrived = zeros(self.size * each, uint8)
        if what == BCAST:
            send, recv = None, self.memory[:each]
        else:
            send = self.memory[: self.size * each if what & EACH else each] if count else None
            recv = self.arrived[: each if what == SCATTER else self.size * each] if reads or what & COMBINES else None
        algorithm = None
        if goes_straight(what):
            algorithm = "naive"
            sizes = <np.npy_intp *>np.PyArray_DATA(self.sent)
            for other in range(self.size if count else 0):
                sizes[other] = HEAD + self.outgoing(other, each if count > 1 else 0).size
        if not self.ran(self.numbers[collective], algorithm, send, recv, root):
            self.undisturbed(self.others.exchange, (NAMES[collective], algorithm, send, recv, root))
        if recv is not None:  # which keeps the memory: a finalizer or a signal handler may begin another call
            entries = <char *>np.PyArray_DATA(<np.ndarray>recv)
        self.same_arrays = arrays
        if arrays:
            for other in range(end):
                self.same_arrays = self.same_arrays and is_same(self.outgoing(0, 0), <Entry *>(entries + other * each))
        if self.same_arrays:
            return None
        if reads:
            for other in range(end):
                found.append(get(<Entry *>(entries + other * each), 0))
                needed = max(needed, (<Entry *>(entries + other * each)).needed)
        if what == BCAST or what == ALLGATHER:
            self.expect(what, needed)
        if self.kept or has_parcels(found):
            self.follow(GATHER if what == REDUCE else collective, count, root, found)
        return found if reads else None

    cdef bint ran(self, number, algorithm, send, recv, root) except -1:
        """Run a collective by the plan of the front; the exception of a signal handler is raised later."""
        try:
            sent = 0 if algorithm is None else <size_t>np.PyArray_DATA(self.sent)
            return self.front.run(number, algorithm, send, recv, None, root, None, sent)
        except BaseException as error:
            if isinstance(error, (MPI.Exception, MemoryError)) or self.channel.broken:
                raise
            if self.error is None:
                self.error = error
            return True

    cdef int follow(self, int what, int count, int root, list found) except -1:
        """Exchange the segments of parcels."""
        cdef list wires = [(<Sealed>one).wire if is_parcel(one) else b"" for one in found]
        cdef Py_ssize_t i
        mine = [self.kept.get(i, NOTHING) for i in range(count)]
        segments = self.undisturbed(self.others.follow, (NAMES[what], wires or None, mine, root))
        for i in range(len(found)):
            if is_parcel(found[i]):
                (<Sealed>found[i]).segments = segments[i]
        return 0

    cdef object undisturbed(self, call, tuple arguments):
        """Call a method of the others and return its result; the exception of a signal handler is raised later."""
        cdef list result
        cdef bint again = False
        while True:
            result = []
            try:
                call(result, *arguments)
            except BaseException as error:
                if result == [BEGUN] or (again and not result):
                    self.error = None
                    raise
                again = True
                if self.error is None:
                    self.error = error
            if result:
                return result[0]


cdef inline bint goes_straight(int what) noexcept:
    """Whether entries are of use to one rank each, so that they can have different lengths."""
    return what & EACH or what == GATHER


cdef inline bint is_parcel(one) noexcept:
    return type(one) is Sealed and (<Sealed>one).segments is not None


cdef inline bint has_parcels(list found) noexcept:
    for one in found:
        if is_parcel(one):
            return True
    return False
