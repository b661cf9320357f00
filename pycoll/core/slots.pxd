cimport numpy as np
from libc.stdint cimport uint32_t

from .steps cimport Arithmetic, Steps
from .waiting cimport SPREAD, Waiting, counter

cdef extern from "atomics.h" nogil:
    ctypedef int announcement

cdef enum:
    READY, DONE, LEFT  # counters: the first one for each slot
cdef enum:
    TINY, SHORT, MEDIUM, LONG  # kinds of slots

cdef enum:
    ANNOUNCED = 1 << 7  # the position of the announcement in an area
    BEFORE = 16  # bytes of a slot before its data, which are as aligned as memory of malloc: its counter, and its call

cdef class SlotCode(Arithmetic):
    cdef list turns
    cdef readonly np.npy_intp piece
    cdef readonly int slots  # TINY, SHORT, MEDIUM or LONG
    cdef uint32_t call


cdef class Slots(Waiting):
    cdef object memory
    cdef readonly int size
    cdef char *start  # of the area of rank 0
    cdef np.npy_intp distance  # between two areas
    cdef char *scratch
    cdef public uint32_t turn, left  # numbers: of the last turn, and of one that all ranks have left
    cdef np.npy_intp slot  # where the slot of this turn is in each area
    cdef uint32_t call  # to which this turn belongs
    cdef object mismatched

    cdef int run(self, SlotCode program, char *send, char *recv) except -1
    cdef int begin_turn(self, int slots, uint32_t call) except -1 nogil
    cdef void post(self, int counter_) noexcept nogil
    cdef void end_turn(self) noexcept nogil
    cdef int take_turn(self, SlotCode program, Steps turn, char *send, char *recv) except -1 nogil
    cdef int wait_for_slot(self, int rank) except -1 nogil
    cdef int wait(self, int rank, int counter_, uint32_t value) except -1 nogil
    cdef int sleep(self, int rank, int counter_, uint32_t value) except -1
    cdef bint is_elsewhere(self, int rank, int counter_) noexcept
    cdef int refuse(self, int rank) except -1

    cdef inline char *area_of(self, int rank) noexcept nogil:
        return self.start + rank * self.distance

    cdef inline char *slot_of(self, int rank) noexcept nogil:
        return self.area_of(rank) + self.slot

    cdef inline announcement *announcement_of(self, int rank) noexcept nogil:
        return <announcement *>(self.area_of(rank) + ANNOUNCED)

    cdef inline uint32_t *call_of(self, int rank) noexcept nogil:
        return <uint32_t *>(self.slot_of(rank) - BEFORE // 2)

    cdef inline counter *counter_of(self, int rank, int number) noexcept nogil:
        if number == READY:
            return <counter *>(self.slot_of(rank) - BEFORE)
        return <counter *>(self.area_of(rank) + (number - DONE) * SPREAD)
