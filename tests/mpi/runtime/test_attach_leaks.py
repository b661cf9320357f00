"""Freed communicators and dropped persistent collectives release their memory."""

import ctypes
import gc

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from tests.mpi.api.specifications import OURS
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE > 2, reason="the same with fewer ranks")]

ROUNDS = 400  # so that a pool that grows once is no leak
MOST = 48  # bytes per round; the smallest leak to detect, a group, has 160


class Mallinfo(ctypes.Structure):
    """The struct returned by mallinfo2 of glibc."""

    names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = [(name, ctypes.c_size_t) for name in names]


def allocated():
    """Return the bytes that this process, including the MPI library, has allocated with malloc and not freed."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        pytest.skip("this C library has no mallinfo2")
    mallinfo.restype = Mallinfo
    gc.collect()
    info = mallinfo()
    return info.uordblks + info.hblkhd


def split():
    OURS.Split(0, RANK).Free()


def attach():
    comm = WORLD.Dup()
    pycoll.attach(comm)
    comm.Free()


def idup(end="Free"):
    child, request = OURS.Idup()
    request.Wait()
    getattr(child, end)()


def idup_free():
    idup("free")


def idup_disconnect():
    idup("Disconnect")


def wrapped_idup():
    child, request = OURS.Idup()
    request.Wait()
    pycoll.attach(MPI.Intracomm(child))
    child.Free()


SEND, RECV = np.ones(4), np.empty(4)


def persistent():
    OURS.Allreduce_init(SEND, RECV)


def started_persistent():
    collective = pycoll.allreduce_init(SEND, RECV)
    collective.Start()
    collective.Wait()


@pytest.mark.parametrize(
    "act", [split, attach, idup, idup_free, idup_disconnect, wrapped_idup, persistent, started_persistent]
)
def test_nothing_leaks(act):
    for _ in range(ROUNDS // 3):
        act()
    before = allocated()
    for _ in range(ROUNDS):
        act()
    WORLD.Barrier()
    assert allocated() - before < ROUNDS * MOST
