# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Collectives of MPI, called by their addresses."""

from libc.string cimport memcpy


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

    def __init__(self, size_t function, list words, int send, int recv, error_of, kept):
        self.function = <Function>function
        self.send, self.recv, self.error_of, self.kept = send, recv, error_of, kept
        for position, word in enumerate(words):
            self.words[position] = word

    cdef int run(self, char *send, char *recv) except -1:
        """Call the function."""
        cdef size_t at[MOST]
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
