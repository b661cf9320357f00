"""Point-to-point messages of a communicator without CuPy."""

import pytest
from mpi4py import MPI

import pycoll
from pycoll.api.comm_messages import DeviceMessages

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("name", ["Send", "Recv", "Isend", "Irecv", "Sendrecv", "Send_init", "iprobe", "send"])
def test_they_are_those_of_mpi4py(name):
    if "Isend" in vars(DeviceMessages):
        pytest.skip("there is CuPy, or the stand-in for it")
    pycoll.Comm(MPI.COMM_SELF).Ibarrier(algorithm="naive").Wait()
    assert getattr(pycoll.Comm, name) is getattr(MPI.Intracomm, name)
