"""Collectives of Python objects, as functions: they are the methods of pycoll.Comm."""

import inspect

import pytest
from mpi4py import MPI

import pycoll
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
ROOT = SIZE - 1
CALLS = {
    "bcast": ({"root": ROOT}, "text"),
    "scatter": ({"root": ROOT}, ["text"] * SIZE),
    "gather": ({"root": ROOT}, "text"),
    "allgather": ({}, RANK),
    "alltoall": ({}, [RANK] * SIZE),
    "reduce": ({"op": MPI.MAX, "root": ROOT}, RANK),
    "allreduce": ({}, (RANK,)),
    "scan": ({"op": lambda a, b: a + b}, RANK),
    "exscan": ({}, 2.5),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions(name):
    function, (options, obj) = getattr(pycoll, f"{name}_object"), CALLS[name]
    expected = getattr(WORLD, name)(obj, **options)
    assert function(obj, **options) == expected
    backward = WORLD.Split(0, -RANK)
    assert function(obj, **options, comm=backward) == getattr(backward, name)(obj, **options)
    backward.Free()
    ours = inspect.signature(getattr(pycoll.Comm, name)).parameters["algorithm"]
    assert inspect.signature(function).parameters["algorithm"] == ours
