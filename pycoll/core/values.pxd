cimport numpy as np
from cpython.object cimport PyObject

cdef enum:
    MOST_SEEN = 16

cdef struct Seen:  # the mutable objects in an object
    int count
    PyObject *objects[MOST_SEEN]

cdef char *encoded(obj, char *to, char *end, Seen *seen, int depth) except? NULL
cdef object decoded(char **at)
