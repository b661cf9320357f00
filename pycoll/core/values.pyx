# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Values: Python objects that need no pickle, as bytes.

These are None, numbers, strings, NumPy scalars and contiguous arrays of numbers, and tuples, lists and dictionaries of
them.  No Python code runs here.  An object that has a mutable object in two places is no value: its pickle tells that
they are one object.
"""

cimport numpy as np
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.complex cimport PyComplex_FromDoubles, PyComplex_ImagAsDouble, PyComplex_RealAsDouble
from cpython.dict cimport PyDict_Next
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_FromDouble
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject, PyObject_TypeCheck, PyTypeObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from numpy import generic

np.import_array()

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int *) except? -1
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *) except NULL

cdef extern from "numpy/arrayobject.h":
    object PyArray_Scalar(void *, np.dtype, object)

cdef enum:  # kinds of values
    NOTHING, FALSE, TRUE, INTEGER, REAL, COMPLEX, TEXT, BYTES, SCALAR, ARRAY, TUPLE, LIST, DICT
cdef enum:
    SHORT = 64  # added to a kind if one byte has the number that follows
    HALF = 23  # the number of this type in NumPy
    WIDEST = 32  # bytes of a number
    DEEPEST = 8  # levels of tuples, lists and dictionaries
    MOST_DIMENSIONS = 8

cdef inline bint is_simple(int type_num) noexcept:
    """Whether the elements of a type are plain bytes; a pickle makes one type of those of the same representation."""
    if sizeof(long) == sizeof(long long) and (type_num == np.NPY_LONGLONG or type_num == np.NPY_ULONGLONG):
        return False
    return 0 <= type_num <= np.NPY_CLONGDOUBLE or type_num == HALF


cdef list types = [np.PyArray_DescrFromType(number) if is_simple(number) else None for number in range(HALF + 1)]
cdef dict scalars = {descr.type: descr for descr in types if descr is not None}


cdef inline char *put_number(char *to, char kind, int64_t number) noexcept:
    """Write a kind and a number, which has one byte if that is enough."""
    if -128 <= number < 128:
        to[0], to[1] = kind | SHORT, <char>number
        return to + 2
    to[0] = kind
    memcpy(to + 1, &number, 8)
    return to + 9


cdef inline int64_t take_number(char **at, char kind) noexcept:
    if not kind & SHORT:
        return take_word(at)
    at[0] += 1
    return <signed char>at[0][-1]


cdef inline int64_t take_word(char **at) noexcept:
    cdef int64_t number
    memcpy(&number, at[0], 8)
    at[0] += 8
    return number


cdef char *encoded(obj, char *to, char *end, Seen *seen, int depth) except? NULL:
    """Write a value and return where it ends; NULL if the object is no value, or longer."""
    cdef int overflow = 0
    cdef int64_t number
    cdef double parts[2]
    cdef Py_ssize_t size
    cdef const char *text
    cdef np.dtype descr
    if end - to < 2 + WIDEST:
        return NULL
    kind = type(obj)
    if kind is float:
        to[0], parts[0] = REAL, PyFloat_AS_DOUBLE(obj)
        memcpy(to + 1, parts, 8)
        return to + 9
    if kind is int:
        number = PyLong_AsLongLongAndOverflow(obj, &overflow)
        return NULL if overflow else put_number(to, INTEGER, number)
    if obj is None or kind is bool:
        to[0] = NOTHING if obj is None else TRUE if obj is True else FALSE
        return to + 1
    if kind is str or kind is bytes or kind is tuple:
        if seen.repeatable == 0:
            return NULL
        seen.repeatable -= 1
    if kind is str:
        if len(<str>obj) > end - to:  # else the string would keep a copy
            return NULL
        try:
            text = PyUnicode_AsUTF8AndSize(obj, &size)
        except UnicodeEncodeError:
            return NULL
        return put_bytes(to, end, TEXT, text, size)
    if kind is bytes:
        return put_bytes(to, end, BYTES, PyBytes_AS_STRING(obj), PyBytes_GET_SIZE(obj))
    if kind is complex:
        to[0], parts[0], parts[1] = COMPLEX, PyComplex_RealAsDouble(obj), PyComplex_ImagAsDouble(obj)
        memcpy(to + 1, parts, 16)
        return to + 17
    if kind is tuple:
        return put_items(obj, PyTuple_GET_SIZE(obj), to, end, seen, depth)
    if kind is list or kind is dict or np.PyArray_CheckExact(obj):
        if not is_new(obj, seen):
            return NULL
        if kind is list:
            return put_items(obj, PyList_GET_SIZE(obj), to, end, seen, depth)
        return put_dict(obj, to, end, seen, depth) if kind is dict else put_array(obj, to, end)
    descr = scalars.get(kind) if PyObject_TypeCheck(obj, <PyTypeObject *>generic) else None
    if descr is None:
        return NULL
    to[0], to[1] = SCALAR, descr.num
    np.PyArray_ScalarAsCtype(obj, to + 2)
    return to + 2 + <Py_ssize_t>descr.itemsize


cdef char *put_bytes(char *to, char *end, char kind, const char *source, Py_ssize_t size) noexcept:
    if end - to < 9 + size:
        return NULL
    to = put_number(to, kind, size)
    memcpy(to, source, size)
    return to + size


cdef char *put_items(obj, Py_ssize_t count, char *to, char *end, Seen *seen, int depth) except? NULL:
    cdef Py_ssize_t i
    cdef bint is_list = type(obj) is list
    if depth == DEEPEST:
        return NULL
    to = put_number(to, LIST if is_list else TUPLE, count)
    for i in range(count):
        item = <object>(PyList_GET_ITEM(obj, i) if is_list else PyTuple_GET_ITEM(obj, i))
        to = encoded(item, to, end, seen, depth + 1)
        if to == NULL:
            return NULL
    return to


cdef char *put_dict(dict obj, char *to, char *end, Seen *seen, int depth) except? NULL:
    cdef Py_ssize_t at = 0
    cdef PyObject *key
    cdef PyObject *value
    if depth == DEEPEST:
        return NULL
    to = put_number(to, DICT, len(obj))
    while PyDict_Next(obj, &at, &key, &value):
        to = encoded(<object>key, to, end, seen, depth + 1)
        if to != NULL:
            to = encoded(<object>value, to, end, seen, depth + 1)
        if to == NULL:
            return NULL
    return to


cdef char *put_array(np.ndarray array, char *to, char *end) noexcept:
    """An array that is not writeable has a pickle that gives another such array."""
    cdef int i, ndim = np.PyArray_NDIM(array)
    cdef Py_ssize_t size = np.PyArray_NBYTES(array)
    cdef int64_t dimension
    if not is_simple(np.PyArray_TYPE(array)) or array.descr is not types[np.PyArray_TYPE(array)]:
        return NULL  # for example of another byte order, or with metadata
    if not (np.PyArray_IS_C_CONTIGUOUS(array) and np.PyArray_ISWRITEABLE(array)):
        return NULL
    if ndim > MOST_DIMENSIONS or end - to < 10 + 8 * ndim + size:
        return NULL
    to[0] = ARRAY
    to = put_number(to + 1, np.PyArray_TYPE(array), ndim)
    for i in range(ndim):
        dimension = np.PyArray_DIM(array, i)
        memcpy(to + 8 * i, &dimension, 8)
    memcpy(to + 8 * ndim, np.PyArray_DATA(array), size)
    return to + 8 * ndim + size


cdef bint is_new(obj, Seen *seen) noexcept:
    """Whether a mutable object has not been seen; note it."""
    cdef int i
    for i in range(seen.count):
        if seen.objects[i] == <PyObject *>obj:
            return False
    if seen.count == MOST_SEEN:
        return False
    seen.objects[seen.count] = <PyObject *>obj
    seen.count += 1
    return True


cdef object decoded(char **at):
    """Read a value, and move `at` to its end."""
    cdef char kind = at[0][0]
    cdef double parts[2]
    cdef Py_ssize_t size
    at[0] += 1
    if kind == REAL:
        memcpy(parts, at[0], 8)
        at[0] += 8
        return PyFloat_FromDouble(parts[0])
    if kind & ~SHORT == INTEGER:
        return <long long>take_number(at, kind)
    if kind == NOTHING:
        return None
    if kind == TRUE or kind == FALSE:
        return kind == TRUE
    if kind == COMPLEX:
        memcpy(parts, at[0], 16)
        at[0] += 16
        return PyComplex_FromDoubles(parts[0], parts[1])
    if kind == SCALAR:
        scalar = PyArray_Scalar(at[0] + 1, types[<int>at[0][0]], None)
        at[0] += 1 + <Py_ssize_t>scalar.dtype.itemsize
        return scalar
    if kind == ARRAY:
        return taken_array(at)
    size = take_number(at, kind)
    kind &= ~SHORT
    if kind == TUPLE:
        return tuple(taken_items(at, size))
    if kind == LIST:
        return taken_items(at, size)
    if kind == DICT:
        return taken_dict(at, size)
    at[0] += size
    return PyUnicode_DecodeUTF8(at[0] - size, size, NULL) if kind == TEXT else PyBytes_FromStringAndSize(at[0] - size, size)


cdef list taken_items(char **at, Py_ssize_t count):
    return [decoded(at) for _ in range(count)]


cdef dict taken_dict(char **at, Py_ssize_t count):
    cdef dict found = {}
    for _ in range(count):
        key = decoded(at)
        found[key] = decoded(at)
    return found


cdef np.ndarray taken_array(char **at):
    cdef np.npy_intp shape[MOST_DIMENSIONS]
    cdef int i, type_num = at[0][0] & ~SHORT, ndim
    cdef np.ndarray array
    at[0] += 1
    ndim = take_number(at, at[0][-1])
    for i in range(ndim):
        shape[i] = take_word(at)
    array = np.PyArray_SimpleNew(ndim, shape, type_num)
    memcpy(np.PyArray_DATA(array), at[0], np.PyArray_NBYTES(array))
    at[0] += np.PyArray_NBYTES(array)
    return array
