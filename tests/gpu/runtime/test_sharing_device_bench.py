"""The path that the benchmark reports, after its calls."""

import pytest

from bench.gpu import path_taken
from pycoll.base import settings
from tests.gpu import standin
from tests.gpu.api.test_collectives import is_real
from tests.mpi.native import SIZE

from .test_sharing_device import Call, memory

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="one rank does not share memory")]


def test_accessed(xp, ipc, monkeypatch):
    assert path_taken(ipc) == {"path": "messages: no rank has opened the memory of another one"}
    Call(ipc, "allreduce", None).run(memory(xp))
    assert path_taken(ipc) == {"path": "CUDA IPC"}
    monkeypatch.setattr(settings, "CUDA_IPC", False)
    assert path_taken(ipc) == {}


@pytest.mark.filterwarnings("ignore:.*open")
def test_refused(xp, ipc):
    if is_real(xp):
        pytest.skip("needs the stand-in")
    standin.ipc.refuses = ipc.rank == SIZE - 1
    Call(ipc, "allreduce", None).run(memory(xp))
    path = path_taken(ipc)["path"]
    assert path.startswith("messages: another rank cannot open") and "ipcOpenMemHandle failed" in path
