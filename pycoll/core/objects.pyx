# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Python objects in slots: the lower-case methods of a communicator whose ranks share a host.

Each call is one turn.  Numbers and short arrays are copied as they are; other objects are parcels.  No Python code runs
in a turn, so ranks pack their objects before it, and unpack them after it.
"""

cimport numpy as np
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.complex cimport PyComplex_FromDoubles, PyComplex_ImagAsDouble, PyComplex_RealAsDouble
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_FromDouble
from cpython.number cimport PyNumber_Add
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from .machine cimport READY, SHORT, Slots

from numpy import generic

from ..base.errors import RemoteError
from ..base.parcels import PICKLED, Parcel, failed, packed, pickled, wrapped
from ..compiler.program import SLOTS

np.import_array()

cdef extern from "Python.h":
    object PyByteArray_FromStringAndSize(char *, Py_ssize_t)
    long long PyLong_AsLongLongAndOverflow(object, int *) except? -1

cdef extern from "numpy/arrayobject.h":
    object PyArray_Scalar(void *, np.dtype, object)

cdef enum:  # kinds of entries
    NOTHING, FALSE, TRUE, INTEGER, REAL, COMPLEX, SCALAR, ARRAY, PICKLE, PARCEL
cdef enum:
    HALF = 23  # the number of this type in NumPy

cdef struct Entry:
    int32_t kind
    int32_t type  # of a scalar or an array, in NumPy
    int32_t size  # of a parcel in bytes; the number of dimensions of an array
    int32_t unused
    int64_t content[1]  # of an array, its shape is first

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
    cdef int ndim
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
    elif kind is bytes or kind is Parcel:
        wire = obj if kind is bytes else obj.wire
        entry.kind, entry.size = PICKLE if kind is bytes else PARCEL, PyBytes_GET_SIZE(wire)
        memcpy(entry.content, PyBytes_AS_STRING(wire), entry.size)
    elif np.PyArray_CheckExact(obj):
        array = obj
        ndim = np.PyArray_NDIM(array)
        entry.kind, entry.type, entry.size = ARRAY, np.PyArray_TYPE(array), ndim
        for i in range(ndim):
            entry.content[i] = np.PyArray_DIM(array, i)
        memcpy(entry.content + ndim, np.PyArray_DATA(array), np.PyArray_NBYTES(array))
    else:
        entry.kind, entry.type = SCALAR, obj.dtype.num
        np.PyArray_ScalarAsCtype(obj, entry.content)
    return 0


cdef object get(char *at):
    """The object of an entry.  Only pickles are of type bytes, and only wires of parcels are of type bytearray."""
    cdef Entry *entry = <Entry *>at
    cdef np.npy_intp shape[64]
    cdef np.ndarray array
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
    if entry.kind == PICKLE:
        return PyBytes_FromStringAndSize(<char *>entry.content, entry.size)
    if entry.kind == PARCEL:
        return PyByteArray_FromStringAndSize(<char *>entry.content, entry.size)
    if entry.kind == SCALAR:
        return PyArray_Scalar(entry.content, types[entry.type], None)
    for i in range(entry.size):
        shape[i] = entry.content[i]
    array = np.PyArray_SimpleNew(entry.size, shape, entry.type)
    memcpy(np.PyArray_DATA(array), entry.content + entry.size, np.PyArray_NBYTES(array))
    return array


cdef bint has_parcels(list found):
    """Whether there is an entry of a parcel."""
    if found is not None:
        for one in found:
            if type(one) is bytearray:
                return True
    return False


cdef class ObjectSlots:
    """The objects that the ranks of a communicator exchange.

    Parameters
    ----------
    slots : Slots
        Those of the communicator.
    others : object
        Has the same methods, for calls with an algorithm, or on an unusable communicator.  Its method `finished` unpacks
        parcels, after their segments have followed; `combined` ends a reduction.
    pickle : MPI.Pickle
        MPI.pickle.
    add : MPI.Op
        MPI.SUM.
    """

    cdef Slots slots
    cdef object others, pickle, add
    cdef int rank, size
    cdef Py_ssize_t room  # for each entry, if a rank has one for each of the others
    cdef object error  # for which this rank sends no object

    def __cinit__(self, Slots slots, others, pickle, add):
        self.slots, self.others, self.pickle, self.add = slots, others, pickle, add
        self.rank, self.size = slots.rank, slots.size
        self.room = ROOM // self.size // 8 * 8

    def bcast(self, obj, root=0, algorithm=None):
        """Give the object of the root to all ranks."""
        cdef int source = self.root_of(root, algorithm)
        if source < 0:
            return self.others.bcast(obj, root, algorithm)
        obj = self.packed(obj, ROOM) if self.rank == source else None
        cdef np.npy_intp slot = self.slots.begin_turn(SHORT)
        if self.rank == source:
            put(self.slots.areas[self.rank] + slot, obj)
            self.slots.post(READY)
        else:
            self.slots.wait(source, READY, self.slots.turn)
        found = [get(self.slots.areas[source] + slot)]
        self.slots.end_turn()
        return self.finished("bcast", found, obj, source, None)[0]

    def scatter(self, objs, root=0, algorithm=None):
        """Give each rank an object of the root."""
        cdef int source = self.root_of(root, algorithm)
        if source < 0 or self.room < LEAST:
            return self.others.scatter(objs, root, algorithm)
        cdef list mine = self.all_packed(objs) if self.rank == source else None
        cdef np.npy_intp slot = self.slots.begin_turn(SHORT)
        if self.rank == source:
            self.put_all(slot, mine)
        else:
            self.slots.wait(source, READY, self.slots.turn)
        found = [get(self.slots.areas[source] + slot + self.rank * self.room)]
        self.slots.end_turn()
        return self.finished("scatter", found, mine, source, None)[0]

    def gather(self, obj, root=0, algorithm=None):
        """Give the objects of all ranks to the root."""
        cdef int to = self.root_of(root, algorithm)
        if to < 0:
            return self.others.gather(obj, root, algorithm)
        obj = self.packed(obj, ROOM)
        return self.finished("gather", self.exchanged(obj, self.rank == to), obj, to, None)

    def allgather(self, obj, algorithm=None):
        """Give the objects of all ranks to all ranks."""
        if algorithm is not None or self.slots.failed:
            return self.others.allgather(obj, algorithm)
        obj = self.packed(obj, ROOM)
        return self.finished("allgather", self.exchanged(obj, True), obj, 0, None)

    def alltoall(self, objs, algorithm=None):
        """Give each rank an object of each rank."""
        if algorithm is not None or self.slots.failed or self.room < LEAST:
            return self.others.alltoall(objs, algorithm)
        cdef list mine = self.all_packed(objs)
        cdef np.npy_intp slot = self.slots.begin_turn(SHORT)
        self.put_all(slot, mine)
        found = self.entries(slot + self.rank * self.room)
        self.slots.end_turn()
        return self.finished("alltoall", found, mine, 0, None)

    def reduce(self, obj, op, root=0, algorithm=None):
        """Combine the objects of all ranks at the root."""
        cdef int to = self.root_of(root, algorithm)
        if to < 0:
            return self.others.reduce(obj, op, root, algorithm)
        return self.reduction("reduce", obj, op, to)

    def allreduce(self, obj, op, algorithm=None):
        """Combine the objects of all ranks on all ranks."""
        if algorithm is not None or self.slots.failed:
            return self.others.allreduce(obj, op, algorithm)
        return self.reduction("allreduce", obj, op, 0)

    def scan(self, obj, op, algorithm=None):
        """Combine the objects of the ranks up to this one."""
        if algorithm is not None or self.slots.failed:
            return self.others.scan(obj, op, algorithm)
        return self.reduction("scan", obj, op, 0)

    def exscan(self, obj, op, algorithm=None):
        """Combine the objects of the ranks before this one."""
        if algorithm is not None or self.slots.failed:
            return self.others.exscan(obj, op, algorithm)
        return self.reduction("exscan", obj, op, 0)

    cdef object reduction(self, str name, obj, op, int root):
        if not callable(op):
            raise TypeError(f"op={op!r} is not an MPI.Op or another function of two objects")
        obj = self.packed(obj, ROOM)
        return self.finished(name, self.exchanged(obj, True), obj, root, op)

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
                return packed(obj, room - HEAD)
            data, buffers = pickled(obj)
            return wrapped(obj, data, buffers, room - HEAD) if buffers or len(data) > room - HEAD else data
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

    cdef int put_all(self, np.npy_intp slot, list mine) except -1:
        cdef int other
        for other in range(self.size):
            put(self.slots.areas[self.rank] + slot + other * self.room, mine[other])
        self.slots.post(READY)
        return 0

    cdef list exchanged(self, obj, bint receives):
        """A turn in which all ranks give their objects to those that receive; None on the others."""
        cdef np.npy_intp slot = self.slots.begin_turn(SHORT)
        put(self.slots.areas[self.rank] + slot, obj)
        self.slots.post(READY)
        found = self.entries(slot) if receives else None
        self.slots.end_turn()
        return found

    cdef list entries(self, np.npy_intp place):
        """The entries of all ranks at this place."""
        cdef list found = []
        cdef int other
        for other in range(self.size):
            if other != self.rank:
                self.slots.wait(other, READY, self.slots.turn)
            found.append(get(self.slots.areas[other] + place))
        return found

    cdef object finished(self, str name, list found, mine, int root, op):
        """Unpack and combine what came; the others do so if segments follow, or if a rank sends no object."""
        error, self.error = self.error, None
        result = found
        try:
            if type(mine) is Parcel or (type(mine) is list and Parcel in map(type, mine)) or has_parcels(found):
                result = self.others.finished(name, wires(found), mine, root, op)
            elif found is not None:
                self.unpack(found)
                if op is self.add and (name == "allreduce" or (name == "reduce" and root == self.rank)):
                    result = total(found)
                elif op is not None:
                    result = self.others.combined(name, found, op, root)
        except RemoteError:
            if error is None:
                raise
        finally:
            self.slots.end_run()
        if error is not None:
            raise error
        return result

    cdef int unpack(self, list found) except -1:
        """Replace pickles by their objects."""
        cdef Py_ssize_t i
        for i in range(len(found)):
            if type(found[i]) is bytes:
                found[i] = self.pickle.loads(found[i])
        return 0


cdef list wires(list found):
    """The wires of pickles and parcels, as the others know them, beside other objects."""
    if found is None:
        return None
    return [PICKLED + one if type(one) is bytes else bytes(one) if type(one) is bytearray else one for one in found]


cdef object total(list values):
    """The sum of values, in the tree of mpi4py."""
    cdef Py_ssize_t step = 1, left, count = len(values)
    while step < count:
        for left in range(0, count - step, 2 * step):
            values[left] = PyNumber_Add(values[left], values[left + step])  # in Cython 3.3.1, 0 + -0.0 is -0.0
        step *= 2
    return values[0]
