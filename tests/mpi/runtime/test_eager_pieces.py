"""Messages in pieces: results of all algorithms and forms, for lengths around the limits."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pycoll
from pycoll.base.errors import TruncatedMessage
from pycoll.runtime.attach import attach
from pycoll.runtime.native import library
from pycoll.schedule.moves import Send
from pycoll.schedule.registry import PRIMITIVES, algorithms_of, find
from pycoll.selection.rules import most_pieces
from tests.mpi.native import RANK, SIZE, WORLD, assert_same, inputs, native

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="there are no messages")]

EAGER = 200  # bytes
ROOTED, OTHERS = (most_pieces(rooted, library()) for rooted in (True, False))
ALL = [
    (name, algorithm)
    for name, primitive in PRIMITIVES.items()
    if not primitive.varies and name not in ("barrier", "exscan")
    for algorithm in algorithms_of(name)
]
AROUND = sorted({EAGER * pieces + more for pieces in (1, 2, OTHERS, ROOTED) for more in (-8, 0, 8)})


@pytest.fixture(scope="module")
def comm():
    """A communicator where the eager limit is believed to be lower, and where no rank shares its core."""
    with believed():
        comm = WORLD.Dup()
        attach(comm)
    assert attach(comm).facts.eager_to(RANK) == (EAGER,) * SIZE
    yield comm
    comm.Free()


@contextlib.contextmanager
def believed(**more):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"eager_limit": EAGER, "os.cpu_count": SIZE, **more}.items():
            patch.setattr(f"pycoll.runtime.attach.{name}", lambda value=value: value)
        yield


def call(comm, form, primitive, algorithm, send, root):
    """The result of a collective, in one of the three forms."""
    given = {"comm": comm, "algorithm": algorithm} | ({"root": root} if PRIMITIVES[primitive].rooted else {})
    if primitive == "scatter":
        given["recvbuf"] = np.empty(send.size // SIZE, send.dtype)
    if form == "blocking":
        return getattr(pycoll, primitive)(send, **given)
    if form == "nonblocking":
        return getattr(pycoll, f"i{primitive}")(send, **given).wait()
    with getattr(pycoll, f"{primitive}_init")(send, **given) as request:
        request.Start()
        return request.wait()


def check(comm, form, primitive, algorithm, nbytes, root=0):
    send = inputs(primitive, nbytes // 8, "int64", seed=nbytes)
    op = "sum" if PRIMITIVES[primitive].reduces else None
    theirs = native(primitive, send.copy(), op, root)
    ours = call(comm, form, primitive, algorithm, send.copy(), root)
    if theirs is not None:
        assert_same(ours, theirs, primitive, send, op)


@pytest.mark.parametrize("primitive, algorithm", ALL)
def test_lengths_around_the_limits(comm, primitive, algorithm):
    for nbytes in AROUND:
        check(comm, "blocking", primitive, algorithm, nbytes, root=nbytes % SIZE)


@pytest.mark.parametrize("form", ["nonblocking", "persistent"])
@pytest.mark.parametrize("primitive", sorted({name for name, _ in ALL}))
def test_other_forms(comm, primitive, form):
    for nbytes in AROUND:
        check(comm, form, primitive, None, nbytes, root=nbytes % SIZE)


@given(st.sampled_from(ALL), st.integers(0, EAGER * (ROOTED + 1) * SIZE), st.integers(0, SIZE - 1))
def test_drawn_lengths(together, comm, pair, nbytes, root):
    together(check, comm, "blocking", *pair, nbytes // 8 * 8, root)


@pytest.mark.parametrize(
    "primitive, algorithm, most", [("allreduce", "recursive_doubling", OTHERS), ("bcast", "naive", ROOTED)]
)
@pytest.mark.parametrize("form", ["blocking", "nonblocking", "persistent"])
def test_the_number_of_pieces(comm, form, primitive, algorithm, most):
    for nbytes, pieces in {EAGER: 1, EAGER + 8: 2, EAGER * most: most, EAGER * most + 8: 1}.items():
        with pycoll.traffic() as sent:
            check(comm, form, primitive, algorithm, nbytes)
        schedule = find(primitive, algorithm).schedule(RANK, SIZE, 0, 1, None)
        sends = sum(isinstance(move, Send) for moves in schedule for move in moves)
        assert sent.messages == sends * pieces
        assert sent.nbytes == sends * nbytes


def test_ranks_on_which_a_gpu_is_possible():
    """They send whole messages, because each piece of a buffer on a GPU would be copied separately."""
    with believed(gpu_possible=RANK == 0):
        other = WORLD.Dup()
        attach(other)
    with pycoll.traffic() as sent:
        pycoll.bcast(np.ones(EAGER + 1, np.uint8), comm=other, algorithm="naive")
    assert sent.messages == (SIZE - 1 if RANK == 0 else 0)
    other.Free()


def test_a_receive_buffer_that_is_too_short():
    """The last piece is truncated, and the error says so, as for whole messages."""
    with believed():
        other = WORLD.Dup()
        attach(other)
    nbytes = 2 * EAGER - 8 * (RANK == 1)
    with pytest.raises(TruncatedMessage) if RANK == 1 else contextlib.nullcontext():
        pycoll.bcast(np.ones(nbytes, np.uint8), comm=other, algorithm="naive")


def test_blocking_calls_while_others_are_in_flight(comm):
    """One rank runs the call as a task, and others do not."""
    other = WORLD.Dup()
    attach(other)
    request = pycoll.iallreduce(np.ones(5), comm=other) if RANK == 0 else None
    for nbytes in AROUND:
        check(comm, "blocking", "allreduce", "recursive_doubling", nbytes)
    request = request or pycoll.iallreduce(np.ones(5), comm=other)
    np.testing.assert_array_equal(request.wait(), SIZE)
    other.Free()


def test_a_progress_thread(comm):
    with pycoll.progress_thread():
        for form in "blocking", "nonblocking", "persistent":
            check(comm, form, "allgather", None, EAGER + 8)
