import socket

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from pycoll.base.mpi import ranks_of_host
from pycoll.torch.rendezvous import _meeting_point
from tests.mpi.native import RANK, WORLD

pytestmark = pytest.mark.mpi(min_size=2)


def test_nobody_listens_at_the_meeting_point():
    """A rank would take the socket that found a free port for the store of rank 0."""
    here = ranks_of_host(WORLD)
    for _ in range(50):
        address, port = _meeting_point(WORLD, here)
        if RANK > 0:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((address, port), 5).close()
        WORLD.Barrier()
