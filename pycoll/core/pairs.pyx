# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""MINLOC and MAXLOC: loops like those of NumPy for its ufuncs, on pairs of a value and an index."""

from libc.stdint cimport int16_t, int32_t, int64_t
from libc.string cimport memcpy, memmove

ctypedef fused Value:
    int16_t
    int32_t
    int64_t
    float
    double

cdef enum:
    SECOND_LEFT, SECOND_RIGHT, EQUAL


cdef inline int better(Value left, Value right, bint greater) noexcept nogil:
    """Which value is better; NaN is better than any number, and all NaN are equal."""
    if Value is float or Value is double:
        if left != left or right != right:
            return EQUAL if left != left and right != right else SECOND_LEFT if left != left else SECOND_RIGHT
    if left == right:
        return EQUAL
    return SECOND_LEFT if (left > right) == greater else SECOND_RIGHT


cdef void combine(Value sample, char **at, np.npy_intp count, Layout *layout) noexcept nogil:
    """Select the better pair, elementwise; of pairs with equal values, the one with the smaller index."""
    cdef char *left = at[0]
    cdef char *right = at[1]
    cdef char *out = at[2]
    cdef Value one, other
    cdef np.npy_intp i
    cdef int found
    for i in range(count):
        memcpy(&one, left + layout.value, sizeof(Value))  # which may not be aligned
        memcpy(&other, right + layout.value, sizeof(Value))
        found = better(one, other, layout.greater)
        if found == EQUAL and index_at(right, layout) < index_at(left, layout):
            found = SECOND_RIGHT
        memmove(out, right if found == SECOND_RIGHT else left, layout.size)
        left, right, out = left + layout.size, right + layout.size, out + layout.size


cdef inline int64_t index_at(char *pair, Layout *layout) noexcept nogil:
    cdef int32_t short_one
    cdef int64_t long_one
    if layout.index_size == sizeof(int32_t):
        memcpy(&short_one, pair + layout.index, sizeof(int32_t))
        return short_one
    memcpy(&long_one, pair + layout.index, sizeof(int64_t))
    return long_one


cdef void loop(char **at, const np.npy_intp *count, const np.npy_intp *strides, void *data) noexcept nogil:
    cdef Layout *layout = <Layout *>data
    if layout.kind == b"h":
        combine[int16_t](0, at, count[0], layout)
    elif layout.kind == b"i":
        combine[int32_t](0, at, count[0], layout)
    elif layout.kind == b"l":
        combine[int64_t](0, at, count[0], layout)
    elif layout.kind == b"f":
        combine[float](0, at, count[0], layout)
    else:
        combine[double](0, at, count[0], layout)


cdef class Pairs:
    """The better ones of pairs of this dtype.

    Parameters
    ----------
    dtype : numpy.dtype
        A value, and an index of 4 or 8 bytes; see `has_pairs`.
    greater : bool
        Whether a greater value is better.
    """

    def __init__(self, dtype, bint greater):
        value, index = (dtype.fields[name] for name in dtype.names)
        self.layout.kind, self.layout.value = ord(KINDS[value[0].str[1:]]), value[1]
        self.layout.index, self.layout.index_size = index[1], index[0].itemsize
        self.layout.size, self.layout.greater = dtype.itemsize, greater
        self.loop = loop

    def __call__(self, size_t left, size_t right, size_t out, np.npy_intp count):
        """Combine so many pairs at these addresses."""
        cdef char *at[3]
        at[0], at[1], at[2] = <char *>left, <char *>right, <char *>out
        loop(at, &count, NULL, &self.layout)


KINDS = {"i2": "h", "i4": "i", "i8": "l", "f4": "f", "f8": "d"}


def has_pairs(dtype):
    """Whether there is a loop for pairs of this dtype."""
    if not dtype.names:  # of an empty buffer
        return False
    value, index = (dtype[name] for name in dtype.names)
    return dtype.isnative and value.str[1:] in KINDS and index.str[1:] in ("i4", "i8")
