"""The algorithms of the MPI library are timed, and only those are selected that are right and faster."""

import time

import pytest
from mpi4py import MPI

from pycoll.runtime import native
from pycoll.tune.export.measure import GAIN, Timer, measured
from pycoll.tune.export.mpich import Mpich
from pycoll.tune.export.ompi import OpenMpi
from pycoll.tune.export.rules import DEFAULT
from tests.mpi.native import SIZE, WORLD

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="one rank sends no messages")]

OWN = Mpich if native.library().startswith("MPICH") else OpenMpi


class Slow(MPI.Intracomm):
    """A communicator with a slow all-reduce."""

    def Allreduce(self, *arguments, **options):
        time.sleep(0.02)
        super().Allreduce(*arguments, **options)


class Wrong(MPI.Intracomm):
    """A communicator whose all-reduce gives a wrong result on its last rank."""

    def Allreduce(self, sendbuf, recvbuf, op=MPI.SUM):
        super().Allreduce(sendbuf, recvbuf, op)
        if op.Is_commutative() and self.rank == self.size - 1:
            recvbuf[-1] += 1


class Failing(MPI.Intracomm):
    """A communicator that has no all-reduce."""

    def Allreduce(self, *arguments, **options):
        raise MPI.Exception(MPI.ERR_UNSUPPORTED_OPERATION)


class Disordered(MPI.Intracomm):
    """A communicator whose all-reduce is right only for operations that commute."""

    def Allreduce(self, sendbuf, recvbuf, op=MPI.SUM):
        super().Allreduce(sendbuf, recvbuf, op)
        if not op.Is_commutative():
            recvbuf[0][...] = 0


class FourAlgorithms:
    """A library with a slow choice of its own, and an algorithm of each kind."""

    def __init__(self, for_any_operation):
        self.for_any_operation = for_any_operation
        self.selected = []

    def algorithms(self, primitive, nbytes):
        return ["wrong", "failing", "disordered", "quick"]

    def communicator(self, primitive, algorithm):
        kinds = {DEFAULT: Slow, "wrong": Wrong, "failing": Failing, "disordered": Disordered, "quick": MPI.Intracomm}
        return kinds[algorithm](WORLD.Dup())

    def select(self, primitive, algorithm, strictly=False):
        self.selected.append(algorithm)


@pytest.mark.parametrize("for_any_operation", [True, False])
def test_what_is_right_and_faster_is_selected(for_any_operation):
    library = FourAlgorithms(for_any_operation)
    found = measured(WORLD, library, [("allreduce", 64), ("allreduce", 4096)], 0.2)
    assert [(one["nbytes"], one["most"]) for one in found["allreduce"]] == [(64, 4095), (4096, 8191)]
    right = {"quick"} | ({"disordered"} if not for_any_operation else set())
    for one in found["allreduce"]:
        assert set(one["seconds"]) == {DEFAULT, *right}
        assert one["selected"] in right and one["gain"] > GAIN
    assert library.selected[-1] == DEFAULT


@pytest.mark.parametrize("primitive", OWN.primitives)
def test_the_algorithms_of_this_library(primitive):
    library = OWN(WORLD)
    tuner = Timer(WORLD, library, primitive, 64 << 10)
    for size in (8, 4096):
        nbytes, point = tuner.point(size, 0.01)
        known = {DEFAULT, *library.algorithms(primitive, nbytes)}
        assert DEFAULT in point["seconds"] and set(point["seconds"]) <= known
        assert all(seconds > 0 for seconds in point["seconds"].values())
        assert point["selected"] in (None, point["best"]) and point["best"] in point["seconds"]
        assert point["gain"] >= (GAIN if point["selected"] else 1)
        assert (point["gain"] == 1) == (point["best"] == DEFAULT)
        if primitive == "allreduce":
            assert "recursive_doubling" in point["seconds"]
            assert ("ring" in point["seconds"]) == (OWN is Mpich), "in Open MPI, it is only for operations that commute"
    tuner.free()
    assert not tuner.communicators


def test_algorithms_for_other_numbers_of_ranks_are_left_out():
    """Recursive doubling of MPICH needs a power of two, and two_proc of Open MPI two ranks."""
    tuner = Timer(WORLD, OWN(WORLD), "allgather", 4096)
    _, point = tuner.point(4096, 0.01)
    tuner.free()
    if OWN is Mpich:
        assert ("recursive_doubling" in point["seconds"]) == (SIZE & (SIZE - 1) == 0)
    else:
        assert ("two_proc" in point["seconds"]) == (SIZE == 2)
