"""Point-to-point messages of a communicator without CuPy."""

import inspect

import pytest
from mpi4py import MPI

import pycoll
from pycoll.api.comm_messages import DeviceMessages

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("name", ["Isend", "Irecv", "Send_init", "Recv_init", "iprobe"])
def test_they_are_those_of_mpi4py(name):
    if "Isend" in vars(DeviceMessages):
        pytest.skip("there is CuPy, or the stand-in for it")
    assert getattr(pycoll.Comm, name) is getattr(MPI.Intracomm, name)


@pytest.mark.parametrize("name", ["Send", "Recv", "Sendrecv", "send", "recv", "bcast", "allreduce"])
def test_they_keep_their_signatures(name):
    pycoll.Comm(MPI.COMM_SELF).Ibarrier(algorithm="naive").Wait()
    assert inspect.signature(getattr(pycoll.Comm, name)) == inspect.signature(getattr(MPI.Intracomm, name))
    assert getattr(pycoll.Comm, name).__name__ == name
