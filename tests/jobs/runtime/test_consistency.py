"""PYCOLL_CHECK, PYCOLL_TIMEOUT and PYCOLL_LOG, tested in separate jobs."""

import pytest

from tests.launch import run
from tests.quick import quick

START = """
import time, numpy as np, pycoll
from mpi4py import MPI
pycoll.abort_on_exception()
world = MPI.COMM_WORLD
rank, size = world.rank, world.size
mine = rank == 1
form = FORM

def call(name, *args, **kwargs):
    if form == "nonblocking":
        return getattr(pycoll, "i" + name)(*args, **kwargs).wait()
    if form == "blocking":
        return getattr(pycoll, name)(*args, **kwargs)
    with getattr(pycoll, name + "_init")(*args, **kwargs) as request:
        request.Start()
        return request.wait()

def raises(error, texts, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except error as problem:
        for text in texts:
            assert text in str(problem), (text, str(problem))
        return str(problem)
    raise AssertionError(f"no {error.__name__}")

world.Barrier()  # ranks may start seconds apart
pycoll.attach(world)
"""

FORMS = quick("blocking", "nonblocking", "persistent")


def program(monkeypatch, text, ranks, form="blocking", before="", **environment):
    """Run a program, check that it ends without an error on all ranks, and return its output."""
    for name, value in environment.items():
        monkeypatch.setenv(f"PYCOLL_{name}", value)
    text = before + START.replace("FORM", repr(form)) + text + "\nprint('came to its end', flush=True)\n"
    job = run(ranks, ["-c", text])
    assert not job.timed_out and job.code == 0, job.output
    assert job.output.count("came to its end") == ranks
    return job.output


MISMATCHES = """
def mismatch(texts, *args, **kwargs):
    message = raises(pycoll.MismatchError, texts, *args, **kwargs)
    assert len(set(world.allgather(message))) == 1
    check_all_is_well()

def check_all_is_well():
    assert (call("allreduce", np.full(3, rank)) == sum(range(size))).all()

a, n = np.ones(6), 1 + mine
others = ", ".join(str(r) for r in range(size) if r != 1)
on = f"(rank{'s' if size > 2 else ''} {others})"
for turn in range(2):
    mismatch([f"primitive differs: 'bcast' {on}; 'scan' (rank 1)"], "scan" if mine else "bcast", a)
    mismatch([f"count differs: 6 {on}; 5 (rank 1)"], "allreduce", a[:5] if mine else a)
    mismatch([f"bytes differs: 48 {on}; 40 (rank 1)"], "bcast", (a[:5] if mine else a).copy())
    mismatch(["dtype differs: 'float64'", "'float32' (rank 1)"], "allreduce", a.astype("f4") if mine else a)
    mismatch(["op differs: ", "SUM", "MAX", "rank 1"], "allreduce", a, op=MPI.MAX if mine else "sum")
    mismatch([f"root differs: 0 {on}; 1 (rank 1)"], "reduce", a, np.empty(6), root=int(mine))
    mismatch([f"algorithm differs: 'ring' {on}; 'tree' (rank 1)"], "barrier", algorithm="tree" if mine else "ring")
    counts = [2] * size
    there = [3 if mine and r == 0 else 2 for r in range(size)]
    mismatch(["recvcounts differs: [16, ", "[24, ", "(rank 1)"], "allgatherv", a[:2], [np.empty(sum(there)), there])
    counts = [5 if r == 1 else 2 for r in range(size)]
    mismatch(["rank 0 sends 40 bytes to rank 1, which expects 16"],
        "scatterv", [np.empty(sum(counts)), counts] if rank == 0 else None, np.empty(2))
    mismatch(["rank 1 sends 16 bytes to rank 0, which expects 40"],
        "gatherv", np.empty(2), [np.empty(sum(counts)), counts] if rank == 0 else None)
    one = [1] * size
    wrong = [1, 4] + [1] * (size - 2) if rank == 0 else one
    mismatch(["rank 0 sends 32 bytes to rank 1, which expects 8"],
        "alltoallv", [np.empty(sum(wrong)), wrong], [None, one])
    mismatch(["recvcounts differs: [8, ", "rank 1"], "reduce_scatter", np.empty(size), recvcounts=
        [0, 2, *one[2:]] if mine else one)
    mismatch(["recvcounts differs: [8, ", "rank 1"], "reduce_scatter", np.empty(size), recvcounts=
        [0, 2, *one[2:]] if mine else None)
    call("reduce_scatter", np.empty(size), recvcounts=one if mine else None)
"""


WRONG_ARGUMENTS = """
for turn in range(2):
    error, text = (ValueError, "recvbuf has 4 elements") if mine else (
        pycoll.MismatchError, "on rank 1 the call of allreduce has wrong arguments (recvbuf has 4 elements")
    raises(error, [text], "allreduce", np.ones(3), np.ones(4 if mine else 3))
    raises(error, ["bad" if mine else "on rank 1 the call of reduce has wrong arguments (op='bad' is not one of"],
        "reduce", np.ones(3), op="bad" if mine else "sum")
    assert (call("allreduce", np.full(3, rank)) == sum(range(size))).all()
"""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ranks", quick(2, 4))
@pytest.mark.parametrize("text", [MISMATCHES, WRONG_ARGUMENTS], ids=["mismatches", "wrong arguments"])
def test_all_ranks_hear_of_what_does_not_fit(monkeypatch, text, ranks, form):
    program(monkeypatch, text, ranks, form, CHECK="1")


UNREADABLE = """
import sys
sys.modules["cupy"] = None
class OnGPU:
    def __init__(self, array):
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3}

comm = pycoll.Comm(world)
method = {"blocking": "Allreduce", "nonblocking": "Iallreduce", "persistent": "Allreduce_init"}[form]
a, b = np.ones(6), np.empty(6)
for turn in range(2):
    try:
        request = getattr(comm, method)(OnGPU(a) if mine else a, OnGPU(b) if mine else b)
        request.Wait()
    except pycoll.MismatchError as problem:
        assert "only MPI may be able to read" in str(problem), problem
    else:
        raise AssertionError("no MismatchError")
    b[...] = 0
    request = getattr(comm, method)(OnGPU(a) if mine else a, OnGPU(b))
    if request:
        if form == "persistent":
            request.Start()
        request.Wait()
    assert (b == size).all()
"""


@pytest.mark.parametrize("form", FORMS)
def test_a_rank_whose_buffers_only_mpi_can_read(monkeypatch, form):
    """Without CuPy, MPI serves buffers in GPU memory, but only if every rank passes one."""
    program(monkeypatch, UNREADABLE, 3, form, CHECK="1")


RIGHT_CALLS = """
from pycoll.schedule.registry import PRIMITIVES, algorithms_of
from tests.mpi.api.nonblocking import case, check
requests = []
for number, (primitive, algorithm) in enumerate((p, a) for p in PRIMITIVES for a in algorithms_of(p)):
    one = case(primitive, seed=number, root=number % size)
    check(call(primitive, **one.given, algorithm=algorithm), one)
    check(call(primitive, **one.given, algorithm=algorithm), one)
    one = case(primitive, seed=number, root=number % size)
    requests.append((getattr(pycoll, "i" + primitive)(**one.given, algorithm=algorithm), one))
for request, one in requests[::1 if rank else -1]:
    check(request.wait(), one)
counts = [3 * r + 1 for r in range(size)]
places = [sum(counts[:r]) for r in range(size)]
everything = np.zeros(sum(counts))
everything[places[rank]:places[rank] + counts[rank]] = rank
call("allgatherv", MPI.IN_PLACE, [everything, counts])
assert (everything == np.repeat(range(size), counts)).all()
call("gatherv", MPI.IN_PLACE if rank == 0 else everything[:counts[rank]], [everything, counts] if rank == 0 else None)
call("scatterv", [everything, counts] if rank == 0 else None, MPI.IN_PLACE if rank == 0 else np.empty(counts[rank]))
call("alltoallv", MPI.IN_PLACE, [np.zeros(size), [1] * size])
call("allreduce", [np.ones(2), np.ones(3)])
"""


@pytest.mark.parametrize(
    "environment",
    [
        {"CHECK": "1", "TIMEOUT": "200"},
        *(pytest.param(one, marks=pytest.mark.slow) for one in ({"CHECK": "1"}, {"TIMEOUT": "200"})),
    ],
    ids=" and ".join,
)
@pytest.mark.parametrize("form", FORMS)
def test_right_calls_give_right_results(monkeypatch, environment, form):
    program(monkeypatch, RIGHT_CALLS, 3, form, **environment)


WRONG_WHILE_OTHERS_WAIT = """
first = pycoll.iallreduce(np.ones(1 << 19), algorithm="ring")
if not mine:
    first.Wait()
raises((ValueError, pycoll.MismatchError), [], "allreduce", np.ones(3), np.ones(4 if mine else 3))
assert (first.wait() == size).all()
"""


def test_flights_go_on_while_a_rank_tells_of_wrong_arguments(monkeypatch):
    program(monkeypatch, WRONG_WHILE_OTHERS_WAIT, 3, CHECK="1")


# One rank never calls the collective; it waits in an MPI barrier until the others have timed out.
LATE = """
request = pycoll.allreduce_init(np.ones(3))
if not mine:
    start = time.perf_counter()
    raises(pycoll.CollectiveTimeout, TEXTS, *ARGUMENTS)
    assert time.perf_counter() - start > 0.9
    for start_again in (pycoll.allreduce, pycoll.iallreduce, pycoll.allreduce_init, lambda values: request.Start()):
        try:
            start_again(np.ones(3))
        except pycoll.CollectiveTimeout as problem:
            assert "cannot be used any more" in str(problem) and TEXTS[0] in str(problem), problem
        else:
            raise AssertionError(f"{start_again} on a broken communicator")
    assert (pycoll.allreduce(np.ones(3), comm=MPI.COMM_SELF) == 1).all()
world.Barrier()
"""


def late(arguments, *texts):
    return LATE.replace("TEXTS", repr(texts)).replace("*ARGUMENTS", arguments)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ranks", quick(2, 3))
def test_a_rank_that_never_calls_is_named(monkeypatch, form, ranks):
    texts = ["bcast by naive on rank ", "within its timeout of 1 s", "it is waiting for rank 1 to send a message to it"]
    text = late("'bcast', np.ones(3), 1, algorithm='naive'", *texts)
    program(monkeypatch, text, ranks, form, TIMEOUT="1")


@pytest.mark.parametrize("function", quick("waitall", "waitany"))
def test_waits_for_several_tell_of_it_too(monkeypatch, function):
    call = f"""
def call(*arguments):
    pycoll.{function}([pycoll.ibcast(np.ones(3), 1, algorithm="tree")])
"""
    texts = ["bcast by tree on rank 0 of 2", "within its timeout of 1 s", "in round 1 it is waiting for rank 1 to send"]
    program(monkeypatch, call + late("'bcast'", *texts), 2, TIMEOUT="1")


def test_a_message_that_nobody_takes(monkeypatch):
    call = "'bcast', np.ones(1 << 20), 0, algorithm='naive'"
    text = late(call, "bcast by naive", "rank 1 to receive a message from it")
    program(monkeypatch, text, 2, TIMEOUT="1")


LATER_ROUNDS = """
requests = [pycoll.iallgather(np.ones(3), algorithm="ring")] if rank != 2 else []
world.Barrier()  # all have sent what they send in the first round
def call():
    requests[0].wait()
if rank != 2:
    texts = ["in round 2 it is waiting for", "rank 3 to send a message to it"] if rank == 0 else ["it is waiting for"]
    raises(pycoll.CollectiveTimeout, texts)
world.Barrier()
"""


def test_the_round_is_named(monkeypatch):
    """In a ring, rank 0 has received the block of rank 3 in round 1 and waits for the block of rank 2 in round 2."""
    program(monkeypatch, LATER_ROUNDS, 4, TIMEOUT="1")


FREED_EARLY = """
comm = pycoll.Comm(world).Dup()
pycoll.attach(comm)
if not mine:
    request = comm.Iallreduce(np.ones(100_000), np.empty(100_000), algorithm="ring")
    for wait in (comm.Free, request.Wait):  # the collective has failed, so both say so
        try:
            wait()
        except pycoll.CollectiveTimeout as error:
            assert "allreduce by ring" in str(error)
        else:
            raise AssertionError(f"no error in {wait}")
    assert comm == MPI.COMM_NULL
world.Barrier()
"""


def test_a_communicator_is_freed_while_a_collective_waits(monkeypatch):
    program(monkeypatch, FREED_EARLY, 2, TIMEOUT="1")


WRONG_ALONE = """
if not mine:
    raises((ValueError, pycoll.CollectiveTimeout), [], "allreduce", np.ones(3), np.ones(4))
world.Barrier()
"""


def test_wrong_arguments_where_another_rank_never_calls(monkeypatch):
    program(monkeypatch, WRONG_ALONE, 2, CHECK="1", TIMEOUT="1")


# one round, in which only rank 1 receives a message that is too long
TRUNCATED = """
try:
    call("bcast", np.ones(2 if mine else 3), algorithm="naive")
except MPI.Exception as problem:
    assert mine and problem.Get_error_class() == MPI.ERR_TRUNCATE
    assert "PYCOLL_CHECK=1" in str(problem), problem
    try:
        call("bcast", np.ones(3))
    except pycoll.CollectiveInterrupted as problem:
        assert "cannot be used any more" in str(problem) and "PYCOLL_CHECK=1" in str(problem)
    else:
        raise AssertionError("used again")
else:
    assert not mine
world.Barrier()
"""


@pytest.mark.parametrize("form", FORMS)
def test_a_truncated_message_hints_at_the_comparison_of_arguments(monkeypatch, form):
    program(monkeypatch, TRUNCATED, 2, form)


# Rank 1 does not take part until the others have timed out.
MESSAGES = """
from functools import partial
long, short = np.ones(1 << 20), np.empty(3)
there = f"on rank {rank} of {size} did not finish in 0.2 s: it waits for"
waits = {
    partial(pycoll.send, long, 1, 7): ["send " + there, "rank 1 to receive the message with tag 7"],
    partial(pycoll.recv, short, 1, 3): ["recv " + there, "rank 1 to send a message with tag 3"],
    partial(pycoll.recv, short): ["recv " + there, "any rank to send a message"],
    partial(pycoll.sendrecv, short, 1, 0, short.copy(), 1, 5): ["sendrecv " + there, "rank 1 to send", "tag 5"],
    lambda: pycoll.waitall([pycoll.irecv(short, 1, 4)]): ["waitall did", "a message with tag 4 (request 0 of 1)"],
    lambda: pycoll.waitall([world.Irecv(short, 1, 4)]): ["waitall did", "a request of MPI (request 0 of 1)"],
    lambda: pycoll.waitany([pycoll.irecv(short, 1, 8), world.Irecv(short, 1, 9)]): ["tag 8 or a request of MPI"],
}
settings.TIMEOUT = 0.2
for wait, texts in {} if mine else waits.items():
    raises(pycoll.CollectiveTimeout, texts, wait)
world.Barrier()
if mine:  # MPI_Finalize of MPICH aborts while messages are pending
    world.Recv(long, 0, 7)
    for tag in (3, 0, 5, 4, 4, 8, 9):
        world.Send(short, 0, tag)
world.Barrier()
"""

COMMUNICATORS = """
comms = [pycoll.Comm(world.Dup()) for _ in range(3)]
for comm in comms:
    comm.Barrier()
plain = world.Dup()
waits = {
    lambda: pycoll.barrier(comm=plain): ["first call of pycoll on this comm", "rank 1 has not made this call"],
    lambda: comms[0].Split(0): ["Split did not finish", "rank 1 has not called it"],
    lambda: comms[1].Create_group(comms[1].Get_group()): ["Create_group did not finish", "has not called it"],
    lambda: DistributedDataParallel({"a": short}): ["the constructor of a driver on rank 0", "has not called it"],
}
settings.TIMEOUT = 0.2
for wait, texts in {} if mine else waits.items():
    who = "rank 0 of 2 waits" if "rank 1" in texts[1] else "of the 2 ranks"
    raises(pycoll.CollectiveTimeout, [*texts, "did not finish in 0.2 s", who], wait)
world.Barrier()
"""


@pytest.mark.parametrize("text", [MESSAGES, COMMUNICATORS], ids=["messages", "communicators"])
def test_what_else_waits_says_for_whom(monkeypatch, text):
    before = "from pycoll.base import settings\nfrom pycoll.parallel import DistributedDataParallel\n"
    program(monkeypatch, "def call(wait): wait()\nshort = np.empty(3)\n" + text, 2, before=before, TIMEOUT="30")


LOGGED = """
comm = pycoll.Comm(world.Dup())
comm.algorithm["Scan"] = "ring"
for turn in range(3):
    pycoll.allreduce(np.ones(3))
    pycoll.allreduce(np.ones(3), algorithm="tree")
    pycoll.iallreduce(np.ones(3), algorithm="tree").Wait()
    pycoll.bcast(np.ones(2))
    comm.Scan(np.ones(3), np.empty(3))
    pycoll.allreduce(np.ones(5), comm=comm)
    pycoll.barrier()
"""


def test_algorithms_are_told_once_with_the_reason(monkeypatch):
    output = program(monkeypatch, LOGGED, 2, LOG="algorithms", BCAST="naive", SHARED_MEMORY="0")
    lines = [line.partition("pycoll.algorithms: ")[2] for line in output.splitlines() if "pycoll.algorithms: " in line]
    told = [
        "allreduce of 24 bytes (float64) on 2 ranks: recursive_doubling, by the rules for its size",
        "allreduce of 24 bytes (float64) on 2 ranks: tree, requested by the call",
        "bcast of 16 bytes (float64) on 2 ranks: naive, set by PYCOLL_BCAST",
        "scan of 24 bytes (float64) on 2 ranks: ring, set by comm.algorithm",
        "allreduce of 40 bytes (float64) on 2 ranks: recursive_doubling, by the rules for its size",
    ]
    barrier = [line for line in lines if line.startswith("barrier")]
    assert len(barrier) == 2 and sorted(lines) == sorted(2 * told + barrier)


def test_nothing_is_told_unasked(monkeypatch):
    assert "pycoll.algorithms" not in program(monkeypatch, LOGGED, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, value",
    [
        ("CHECK", "yes"),
        ("TIMEOUT", "soon"),
        ("TIMEOUT", "0"),
        ("TIMEOUT", "-1"),
        ("TIMEOUT", "nan"),
        ("LOG", "everything"),
        ("ALLREDUCE", "fastest"),
        ("SEGMENT", "0"),
    ],
)
def test_bad_settings_are_refused_by_name(monkeypatch, name, value):
    monkeypatch.setenv(f"PYCOLL_{name}", value)
    job = run(1, ["-c", "import numpy as np, pycoll; pycoll.allreduce(np.ones(3))"])
    assert job.code != 0 and f"ValueError: environment variable PYCOLL_{name}='{value}'" in job.output


def test_empty_settings_are_none(monkeypatch):
    program(monkeypatch, "pycoll.allreduce(np.ones(3))", 1, CHECK="", TIMEOUT="", LOG="", ALLREDUCE="")
