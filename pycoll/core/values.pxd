cimport numpy as np
from cpython.object cimport PyObject

cdef enum:
    MOST_SEEN = 16

cdef struct Seen:  # in an object
    int repeatable  # strings, bytes and tuples that are still allowed: a pickle has each one once
    int count  # of mutable objects
    PyObject *objects[MOST_SEEN]

cdef char *encoded(obj, char *to, char *end, Seen *seen, int depth) except? NULL
cdef object decoded(char **at)
