"""Fixtures for GPU memory that other ranks access."""

import pytest
from mpi4py import MPI

import pycoll
from pycoll.base import settings
from pycoll.runtime import sharing_choice
from tests.gpu import standin
from tests.gpu.api.test_collectives import is_real
from tests.gpu.conftest import on_path

LEAST = 256  # bytes from which the GPU memory of others is accessed here


@pytest.fixture(params=["staged"])
def way(request, xp, monkeypatch):
    """Yield the path of buffers that other ranks cannot access."""
    yield from on_path(request.param, xp, monkeypatch)


@pytest.fixture
def access(monkeypatch):
    """Let ranks access the GPU memory of others."""
    monkeypatch.setattr(settings, "CUDA_IPC", True)
    monkeypatch.setattr(sharing_choice, "CUDA_IPC_FROM", LEAST)


@pytest.fixture
def ipc(xp, way, access):
    """Yield a communicator on which ranks access the GPU memory of each other."""
    before = set(standin.ipc.opened)  # by communicators that failed
    comm = MPI.COMM_WORLD.Dup()
    assert pycoll.attach(comm).facts.cuda_ipc
    yield comm
    comm.Free()
    if not is_real(xp):
        assert set(standin.ipc.opened) <= before
