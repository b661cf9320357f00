import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.base import settings
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
RIGHT, LEFT = (RANK + 1) % SIZE, (RANK - 1) % SIZE


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "c16", "?", "f2", "S3"])
def test_sendrecv_round_the_ring(dtype):
    mine = np.full(5, RANK).astype(dtype)
    came = pycoll.sendrecv(mine, RIGHT, 3, source=LEFT, recvtag=3)
    np.testing.assert_array_equal(came, np.full(5, LEFT).astype(dtype))
    given = np.empty_like(mine)
    assert pycoll.sendrecv(mine, RIGHT, recvbuf=given, source=LEFT) is given
    np.testing.assert_array_equal(given, came)


def test_gaps_are_packed_and_multiple_dimensions_go():
    grid = np.arange(12.0).reshape(3, 4) + RANK
    came = pycoll.sendrecv(grid[:, ::2], RIGHT, recvbuf=np.empty((3, 2)), source=LEFT)
    np.testing.assert_array_equal(came, np.arange(12.0).reshape(3, 4)[:, ::2] + LEFT)


def test_any_source_any_tag_and_status():
    comm = WORLD.Dup()  # a separate communicator, since any message matches
    requests = [pycoll.isend(np.array([RANK, peer]), peer, tag=peer, comm=comm) for peer in range(SIZE)]
    seen = set()
    for _ in range(SIZE):
        status, buf = MPI.Status(), np.empty(4, int)
        assert pycoll.recv(buf, status=status, comm=comm) is buf
        assert buf[0] == status.source and buf[1] == RANK == status.tag
        assert status.Get_count(MPI.INT64_T) == 2
        seen.add(status.source)
    assert seen == set(range(SIZE))
    MPI.Request.Waitall(requests)
    comm.Free()


def test_nonblocking_both_ways_and_tags_told_apart():
    first, second = np.empty(3), np.empty(3)
    requests = [pycoll.irecv(second, LEFT, 2), pycoll.irecv(first, LEFT, 1)]
    requests.append(pycoll.isend(np.full(3, 1.0), RIGHT, 1))
    requests.append(pycoll.isend(np.full(3, 2.0), RIGHT, 2))
    MPI.Request.Waitall(requests)
    assert (first == 1.0).all() and (second == 2.0).all()


def test_on_the_callers_own_communicator():
    comm = WORLD.Dup()
    request = comm.irecv(source=LEFT, tag=9)
    comm.isend("from mpi4py", RIGHT, tag=9).wait()
    assert request.wait() == "from mpi4py"
    request = pycoll.isend(np.array([1.5]), RIGHT, 9, comm=comm)
    came = np.empty(1)
    comm.Recv(came, LEFT, 9)
    request.Wait()
    assert came[0] == 1.5
    comm.Free()


def test_ranks_and_tags_out_of_range():
    buf, comm = np.zeros(3), WORLD.Dup()
    functions = {"dest": [pycoll.send, pycoll.isend, pycoll.sendrecv], "source": [pycoll.recv, pycoll.irecv]}
    for name in functions:
        for function in functions[name]:
            for rank in (SIZE, -7):
                for error in (ValueError, MPI.Exception):
                    with pytest.raises(error, match=rf"^{name}={rank} is not a rank of .* size {SIZE}$"):
                        function(buf, rank, comm=comm)
            with pytest.raises(TypeError, match=rf"^{name}='1' is not an integer$"):
                function(buf, "1", comm=comm)
            for error in (ValueError, MPI.Exception):
                with pytest.raises(error, match=r"tag=-5 is not a tag, a number from 0 to \d+$"):
                    function(buf, 0, -5, comm=comm)
    with pytest.raises(ValueError, match=rf"^source={SIZE} is not a rank"):
        pycoll.sendrecv(buf, RIGHT, source=SIZE, comm=comm)
    assert not comm.Iprobe()
    comm.Free()


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_message_that_is_too_long(monkeypatch, timeout):
    monkeypatch.setattr(settings, "TIMEOUT", timeout)
    short = np.empty(3)
    for receive in (
        lambda: pycoll.recv(short, LEFT),
        lambda: pycoll.sendrecv(short, MPI.PROC_NULL, recvbuf=short.copy(), source=LEFT),
        lambda: pycoll.waitall([pycoll.irecv(short, LEFT)]),
        lambda: pycoll.waitany([pycoll.irecv(short, LEFT)]),
    ):
        sending = pycoll.isend(np.zeros(20), RIGHT)
        with pytest.raises(MPI.Exception, match=r"^the message is longer than .*buf") as caught:
            receive()
        assert caught.value.Get_error_class() == MPI.ERR_TRUNCATE and caught.value.__suppress_context__
        sending.Wait()


def test_wrong_buffers():
    with pytest.raises(TypeError, match="buf must be an array"):
        pycoll.send([1, 2], RIGHT)
    with pytest.raises(TypeError, match="comm must be a communicator"):
        pycoll.send(np.zeros(2), RIGHT, comm="world")
    with pytest.raises(ValueError, match="overlap"):
        both = np.zeros(2)
        pycoll.sendrecv(both, RIGHT, recvbuf=both)
    with pytest.raises(ValueError, match="read-only"):
        pycoll.recv(np.float64(0), LEFT)
    readonly = np.zeros(2)
    readonly.flags.writeable = False
    with pytest.raises(ValueError, match="buf is read-only"):
        pycoll.recv(readonly, LEFT)
    with pytest.raises(ValueError, match="recvbuf is not C-contiguous"):
        pycoll.sendrecv(np.zeros(2), RIGHT, recvbuf=np.zeros(4)[::2])
