"""Buffers whose contents are still being computed when kernels of other ranks access them."""

import pytest

import pycoll
from pycoll.runtime import sharing_choice
from pycoll.runtime.sharing_device import DeviceSharing
from tests.gpu.api.test_api_pending import CASES, FORMS, IN_PLACE, check_buffers_with_a_datatype, check_in_place
from tests.mpi.native import SIZE

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="one rank does not share memory")]


@pytest.fixture
def comm(ipc, monkeypatch):
    """Return a communicator on which kernels access the GPU memory of other ranks in calls of any length."""
    monkeypatch.setattr(sharing_choice, "CUDA_IPC_FROM", 1)
    return pycoll.Comm(ipc)


@pytest.fixture
def used(monkeypatch):
    """Return a list of the calls in which they do."""
    calls, take = [], DeviceSharing._take

    def counted(self, *arguments):
        calls.append(self.program)
        return take(self, *arguments)

    monkeypatch.setattr(DeviceSharing, "_take", counted)
    return calls


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CASES)
def test_buffers_with_a_datatype(xp, comm, used, name, form):
    check_buffers_with_a_datatype(xp, comm, name, form)
    assert used


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(xp, comm, used, name, form):
    check_in_place(xp, comm, name, form)
    assert used
