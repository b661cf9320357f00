# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Python objects in slots: the lower-case methods of a communicator whose ranks share a host.

Each call is one turn.  Numbers and short arrays are copied as they are.  Other objects are pickles, or parcels whose
segments their readers copy from the memory of the sender, which waits until they have left the turn.  No Python code
runs in a turn, so ranks pack their objects before it, and unpack them after it.
"""

cimport numpy as np
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.complex cimport PyComplex_FromDoubles, PyComplex_ImagAsDouble, PyComplex_RealAsDouble
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_FromDouble
from cpython.number cimport PyNumber_Add
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcmp, memcpy

from .machine cimport LEFT, READY, SHORT, Slots

from numpy import generic

from ..base.parcels import LONG_ARRAY, Parcel, failed, packed, pickled, unpacked, wrapped
from ..compiler.program import SLOTS

np.import_array()

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int *) except? -1

cdef extern from "mailboxes.h" nogil:
    int copy_from_process(int process, void *to, uint64_t start, size_t size)

cdef extern from "numpy/arrayobject.h":
    object PyArray_Scalar(void *, np.dtype, object)

cdef enum:  # kinds of entries
    NOTHING, FALSE, TRUE, INTEGER, REAL, COMPLEX, SCALAR, ARRAY, PICKLE, PARCEL
cdef enum:
    HALF = 23  # the number of this type in NumPy

cdef struct Entry:
    int32_t kind
    int32_t type  # of a scalar or an array, in NumPy
    int32_t size  # of a pickle, or of what a parcel sends first, in bytes; the number of dimensions of an array
    int32_t segments  # how many follow
    int64_t content[1]  # of an array, its shape is first; of a parcel, the addresses and sizes of its segments

cdef enum:
    HEAD = 16  # bytes of an entry before its content
    LEAST = 64  # the least bytes of an entry
cdef Py_ssize_t ROOM = SLOTS[0][0]  # bytes of an entry that has a slot of its own


cdef inline bint is_simple(int type_num) noexcept:
    """Whether elements of a type are plain bytes."""
    return 0 <= type_num <= np.NPY_CLONGDOUBLE or type_num == HALF


cdef list types = [np.PyArray_DescrFromType(number) if is_simple(number) else None for number in range(HALF + 1)]


cdef bint is_short(np.ndarray array, Py_ssize_t room):
    """Whether an array is one that `put` takes; a pickle of an array that is not writeable gives another such array."""
    if not is_simple(np.PyArray_TYPE(array)) or not np.PyArray_ISNOTSWAPPED(array):
        return False
    if not np.PyArray_IS_C_CONTIGUOUS(array) or not np.PyArray_ISWRITEABLE(array):
        return False
    return np.PyArray_NBYTES(array) + 8 * np.PyArray_NDIM(array) <= room


cdef int put(char *at, obj) except -1:
    """Write an entry; there is room for it."""
    cdef Entry *entry = <Entry *>at
    cdef np.ndarray array
    cdef int i, count
    cdef bytes wire
    kind = type(obj)
    if kind is float:
        entry.kind = REAL
        (<double *>entry.content)[0] = PyFloat_AS_DOUBLE(obj)
    elif kind is int:
        entry.kind, entry.content[0] = INTEGER, <long long>obj
    elif obj is None:
        entry.kind = NOTHING
    elif kind is bool:
        entry.kind = TRUE if obj is True else FALSE
    elif kind is complex:
        entry.kind = COMPLEX
        (<double *>entry.content)[0] = PyComplex_RealAsDouble(obj)
        (<double *>entry.content)[1] = PyComplex_ImagAsDouble(obj)
    elif kind is bytes:
        entry.kind, entry.size = PICKLE, PyBytes_GET_SIZE(obj)
        memcpy(entry.content, PyBytes_AS_STRING(obj), entry.size)
    elif kind is Parcel:
        wire, count = obj.wire, len(obj.segments)
        entry.kind, entry.size, entry.segments = PARCEL, PyBytes_GET_SIZE(wire), count
        for i in range(count):
            array = obj.segments[i]
            entry.content[2 * i], entry.content[2 * i + 1] = <int64_t>np.PyArray_DATA(array), np.PyArray_NBYTES(array)
        memcpy(entry.content + 2 * count, PyBytes_AS_STRING(wire), entry.size)
    elif np.PyArray_CheckExact(obj):
        array = obj
        count = np.PyArray_NDIM(array)
        entry.kind, entry.type, entry.size = ARRAY, np.PyArray_TYPE(array), count
        for i in range(count):
            entry.content[i] = np.PyArray_DIM(array, i)
        memcpy(entry.content + count, np.PyArray_DATA(array), np.PyArray_NBYTES(array))
    else:
        entry.kind, entry.type = SCALAR, obj.dtype.num
        np.PyArray_ScalarAsCtype(obj, entry.content)
    return 0


cdef object get(char *at, int process):
    """The object of an entry; nothing else is a pickle of type bytes, or a tuple of a parcel: its wire and its segments.

    `process` is that of its rank, or 0 if this is the own rank.
    """
    cdef Entry *entry = <Entry *>at
    cdef np.npy_intp shape[64]
    cdef np.ndarray array
    cdef list segments
    cdef int i
    if entry.kind == REAL:
        return PyFloat_FromDouble((<double *>entry.content)[0])
    if entry.kind == INTEGER:
        return <long long>entry.content[0]
    if entry.kind == NOTHING:
        return None
    if entry.kind == TRUE or entry.kind == FALSE:
        return entry.kind == TRUE
    if entry.kind == COMPLEX:
        return PyComplex_FromDoubles((<double *>entry.content)[0], (<double *>entry.content)[1])
    if entry.kind == SCALAR:
        return PyArray_Scalar(entry.content, types[entry.type], None)
    if entry.kind == PICKLE:
        return PyBytes_FromStringAndSize(<char *>entry.content, entry.size)
    if entry.kind == PARCEL:
        segments = [copied(process, entry.content[2 * i], entry.content[2 * i + 1]) for i in range(entry.segments)]
        return PyBytes_FromStringAndSize(<char *>(entry.content + 2 * entry.segments), entry.size), segments
    for i in range(entry.size):
        shape[i] = entry.content[i]
    array = np.PyArray_SimpleNew(entry.size, shape, entry.type)
    memcpy(np.PyArray_DATA(array), entry.content + entry.size, np.PyArray_NBYTES(array))
    return array


cdef object copied(int process, uint64_t start, np.npy_intp size):
    """An array of bytes from the memory of a process, or of this process if that is 0."""
    cdef np.ndarray array = np.PyArray_SimpleNew(1, &size, np.NPY_UINT8)
    cdef char *to = <char *>np.PyArray_DATA(array)
    cdef bint fine = True
    with nogil:
        if process:
            fine = copy_from_process(process, to, start, size)
        else:
            memcpy(to, <void *>start, size)
    if not fine:
        raise OSError(f"the memory of process {process} cannot be read")
    return array


cdef bint is_same(char *at, bytes wire):
    """Whether this is the entry of a parcel with this wire."""
    cdef Entry *entry = <Entry *>at
    if entry.kind != PARCEL or entry.size != PyBytes_GET_SIZE(wire):
        return False
    return memcmp(entry.content + 2 * entry.segments, PyBytes_AS_STRING(wire), entry.size) == 0


cdef enum:
    ALL = -1  # ranks


cdef class ObjectSlots:
    """The collectives of objects on a communicator.

    Parameters
    ----------
    slots : Slots
        Those of the communicator.
    processes : list of int
        The process of each rank.
    others : object
        Has the same methods, for calls with an algorithm, or on an unusable communicator.  Its method `combined` ends a
        reduction, and `combined_arrays` runs one of long arrays if `combines` says so.
    pickle : MPI.Pickle
        MPI.pickle.
    add : MPI.Op
        MPI.SUM.
    """

    cdef Slots slots
    cdef object others, pickle, add
    cdef list processes
    cdef int rank, size
    cdef Py_ssize_t room  # of an entry, if a rank has one for each of the others
    cdef bint same_arrays  # in the last turn
    cdef object error  # for which this rank sends or receives no object

    def __cinit__(self, Slots slots, list processes, others, pickle, add):
        self.slots, self.processes, self.others, self.pickle, self.add = slots, processes, others, pickle, add
        self.rank, self.size = slots.rank, slots.size
        self.processes[self.rank] = 0
        self.room = ROOM // self.size // 8 * 8

    def bcast(self, obj, root=0, algorithm=None):
        """Give the object of the root to all ranks."""
        cdef int source = self.root_of(root, algorithm)
        if source < 0:
            return self.others.bcast(obj, root, algorithm)
        mine = [self.packed(obj, ROOM)] if self.rank == source else None
        return self.opened(self.exchanged(mine, source, ALL))[0]

    def scatter(self, objs, root=0, algorithm=None):
        """Give each rank an object of the root."""
        cdef int source = self.root_of(root, algorithm)
        if source < 0 or self.room < LEAST:
            return self.others.scatter(objs, root, algorithm)
        mine = self.all_packed(objs) if self.rank == source else None
        return self.opened(self.exchanged(mine, source, ALL, self.room))[0]

    def gather(self, obj, root=0, algorithm=None):
        """Give the objects of all ranks to the root."""
        cdef int to = self.root_of(root, algorithm)
        if to < 0:
            return self.others.gather(obj, root, algorithm)
        return self.opened(self.exchanged([self.packed(obj, ROOM)], ALL, to))

    def allgather(self, obj, algorithm=None):
        """Give the objects of all ranks to all ranks."""
        if algorithm is not None or self.slots.failed:
            return self.others.allgather(obj, algorithm)
        return self.opened(self.exchanged([self.packed(obj, ROOM)], ALL, ALL))

    def alltoall(self, objs, algorithm=None):
        """Give each rank an object of each rank."""
        if algorithm is not None or self.slots.failed or self.room < LEAST:
            return self.others.alltoall(objs, algorithm)
        return self.opened(self.exchanged(self.all_packed(objs), ALL, ALL, self.room))

    def reduce(self, obj, op, root=0, algorithm=None):
        """Combine the objects of all ranks at the root."""
        cdef int to = self.root_of(root, algorithm)
        if to < 0 or not callable(op):
            return self.others.reduce(obj, op, root, algorithm)
        return self.combined("reduce", obj, op, to)

    def allreduce(self, obj, op, algorithm=None):
        """Combine the objects of all ranks on all ranks."""
        if algorithm is not None or self.slots.failed or not callable(op):
            return self.others.allreduce(obj, op, algorithm)
        return self.combined("allreduce", obj, op, ALL)

    def scan(self, obj, op, algorithm=None):
        """Combine the objects of the ranks up to this one."""
        if algorithm is not None or self.slots.failed or not callable(op):
            return self.others.scan(obj, op, algorithm)
        return self.combined("scan", obj, op, ALL)

    def exscan(self, obj, op, algorithm=None):
        """Combine the objects of the ranks before this one."""
        if algorithm is not None or self.slots.failed or not callable(op):
            return self.others.exscan(obj, op, algorithm)
        return self.combined("exscan", obj, op, ALL)

    cdef object combined(self, str name, obj, op, int reader):
        obj = self.packed(obj, ROOM)
        cdef bint arrays = type(obj) is Parcel and obj.wire[:1] == LONG_ARRAY and self.others.combines(op, obj)
        cdef list values = self.opened(self.exchanged([obj], ALL, reader, 0, arrays))
        if self.same_arrays:
            return self.others.combined_arrays(name, obj, op, max(reader, 0))
        if values is None:
            return None
        if op is self.add and (name == "allreduce" or name == "reduce"):
            return total(values)
        return self.others.combined(name, values, op)

    cdef int root_of(self, root, algorithm) except -2:
        """The number of a root; -1 if the others run this call."""
        if algorithm is not None or self.slots.failed or type(root) is not int or not 0 <= root < self.size:
            return -1
        return <int>root

    cdef object packed(self, obj, Py_ssize_t room):
        """What `put` takes for an object: the object itself, its pickle, or a parcel."""
        cdef int overflow = 0
        kind = type(obj)
        if kind is float or obj is None or kind is bool or kind is complex:
            return obj
        if kind is int:
            PyLong_AsLongLongAndOverflow(obj, &overflow)
            if not overflow:
                return obj
        elif np.PyArray_CheckExact(obj):
            if is_short(<np.ndarray>obj, room - HEAD):
                return obj
        elif isinstance(obj, generic) and is_simple(obj.dtype.num) and types[<int>obj.dtype.num].type is kind:
            return obj
        try:
            if np.PyArray_CheckExact(obj):
                return packed(obj, (room - HEAD) // 3)  # beside the addresses of segments
            data, buffers = pickled(obj)
            if not buffers and len(data) <= room - HEAD:
                return data
            return wrapped(obj, data, buffers, (room - HEAD) // 3)
        except BaseException as error:
            self.error = error
            return failed(self.rank, error, room - HEAD)

    cdef list all_packed(self, objs):
        """The same for one object for each rank."""
        cdef list found
        try:
            found = [None] * self.size if objs is None else list(objs)
            if len(found) != self.size:
                raise ValueError(f"expecting {self.size} items, got {len(found)}")
        except BaseException as error:
            self.error = error
        else:
            found = [self.packed(one, self.room) for one in found]
        if self.error is not None:
            found = [failed(self.rank, self.error, self.room - HEAD)] * self.size
        return found

    cdef list exchanged(self, list mine, int source, int reader, Py_ssize_t distance=0, bint arrays=False):
        """A turn: the entries of all ranks, or of `source`, for this rank; None if only another `reader` reads them.

        `mine` are the entries of this rank, which all read, or one for each rank at this distance.  With `arrays`, the
        segments are not copied if all ranks have the same kind of arrays; then `same_arrays` is true.
        """
        cdef np.npy_intp slot = self.slots.begin_turn(SHORT)
        cdef np.npy_intp place = slot + self.rank * distance
        cdef int other, first = 0 if source == ALL else source, end = self.size if source == ALL else source + 1
        cdef list found = None
        if mine is not None:
            for other in range(len(mine)):
                put(self.slots.areas[self.rank] + slot + other * distance, mine[other])
            self.slots.post(READY)
        self.same_arrays = arrays
        if arrays or reader == ALL or reader == self.rank:
            for other in range(first, end):
                if other != self.rank:
                    self.slots.wait(other, READY, self.slots.turn)
                self.same_arrays = self.same_arrays and is_same(self.slots.areas[other] + place, mine[0].wire)
        if (reader == ALL or reader == self.rank) and not self.same_arrays:
            found = []
            for other in range(first, end):
                found.append(self.entry(self.slots.areas[other] + place, other))
        self.slots.end_turn()
        if mine is not None and not self.same_arrays:
            for other in range(self.size):
                if other != self.rank and (reader == ALL or other == reader):
                    if has_segments(mine[other if distance else 0]):
                        self.slots.wait(other, LEFT, self.slots.turn)
        return found

    cdef object entry(self, char *at, int rank):
        """Read an entry; the rank takes part to the end if that fails."""
        try:
            return get(at, self.processes[rank])
        except Exception as error:
            self.error = self.error or error

    cdef list opened(self, list found):
        """Unpack entries, or raise the error for which this rank has sent or received no object."""
        cdef Py_ssize_t i
        error, self.error = self.error, None
        try:
            if error is None and found is not None:
                for i in range(len(found)):
                    if type(found[i]) is bytes:
                        found[i] = self.pickle.loads(found[i])
                    elif type(found[i]) is tuple:
                        found[i] = unpacked(*found[i])
        finally:
            self.slots.end_run()
        if error is not None:
            raise error
        return found


cdef inline bint has_segments(entry):
    return type(entry) is Parcel and len(entry.segments) > 0


cdef object total(list values):
    """The sum of values, in the tree of mpi4py."""
    cdef Py_ssize_t step = 1, left, count = len(values)
    while step < count:
        for left in range(0, count - step, 2 * step):
            values[left] = PyNumber_Add(values[left], values[left + step])  # in Cython 3.3.1, 0 + -0.0 is -0.0
        step *= 2
    return values[0]
