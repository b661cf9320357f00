"""Ranks are killed at chosen moments of training, and the others go on."""

import json
import re

import pytest

from tests.launch import run
from tests.quick import ULFM

pytestmark = pytest.mark.ulfm

PROGRAM = """
import json, os, signal, sys, threading, time
from functools import partial
import numpy as np
from mpi4py import MPI
import pycoll
from pycoll.parallel import SGD, DistributedDataParallel, FullyShardedDataParallel, ParameterServer, checkpoint, elastic

kind, folder, dying, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])
STEPS, EPOCH, MORE = options.get("steps", 100), 50, options.get("more", 5)
world = MPI.COMM_WORLD.rank if MPI.Comm.Get_parent() == MPI.COMM_NULL else -1
inputs = np.random.default_rng(0).random((1000, 3))
targets = inputs @ [[1.0], [2.0], [3.0]]
if options.get("abort", True):
    pycoll.abort_on_exception()
builds = 0

def dies(moment, step):
    return [world, step] in dying.get(moment, ())

def die(moment, step):
    if dies(moment, step):
        os.kill(os.getpid(), getattr(signal, options.get("signal", "SIGKILL")))

class Optimizer(SGD):
    def step(self, gradients):
        super().step(gradients)
        die("server", max(self.steps.values()))

write = checkpoint.write_atomically

def half(path, function, like=None):
    if dies("save", state.step):
        path.with_name(path.name + "x.tmp").write_bytes(b"half")
        die("save", state.step)
    write(path, function, like)

checkpoint.write_atomically = half

def make(comm):
    global builds
    builds += 1
    die("recovery", builds)
    optimizer = partial(Optimizer, lr=0.1 if options.get("mode") == "async" else 0.5, momentum=0.5)
    parameters = {"weight": np.zeros((3, 1)), "more": np.ones(MORE)}
    if kind == "ddp":
        return DistributedDataParallel(parameters, comm=comm, bucket_bytes=64), optimizer(parameters)
    if kind == "fsdp":
        driver = FullyShardedDataParallel(parameters, comm=comm)
        return driver, optimizer(driver.shards)
    servers = min(options.get("servers", 1), max(1, comm.size - 1))
    more = {key: value for key, value in options.items() if key in ("mode", "update", "staleness", "colocated")}
    return ParameterServer(parameters, optimizer=optimizer, servers=servers, comm=comm, **more), None

def gradient(state, weight, number, count):
    batch = np.arange(state.step * 64, (state.step + 1) * 64) % 1000
    mine = batch[number::count]
    return inputs[mine].T @ (inputs[mine] @ weight - targets[mine]) * count / 64

def step(state):
    driver, rank, size, zeros = state.driver, state.comm.rank, state.comm.size, np.zeros(MORE)
    if kind == "ddp":
        die("forward", state.step)
        driver.ready("more", zeros)
        die("backward", state.step)
        driver.ready("weight", gradient(state, driver.parameters["weight"], rank, size))
    elif kind == "fsdp":
        with driver.forward(0) as parameters:
            die("forward", state.step)
            found = gradient(state, parameters["weight"], rank, size)
        with driver.forward(1), driver.backward(1):
            driver.ready("more", zeros)
        die("backward", state.step)
        with driver.backward(0):
            driver.ready("weight", found)
    else:
        die("forward", state.step)
        found = gradient(state, driver.parameters["weight"], rank, sum(map(len, driver.roles.workers)))
        driver.push({"weight": found, "more": zeros})
        die("backward", state.step)
        driver.pull()
        return
    if dies("middle", state.step):
        threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGKILL)).start()
    state.optimizer.step(driver.synchronize())

def train(state):
    if state.comm.rank == 0:
        print("begins after step", state.step, flush=True)
    for recovery in state.recoveries[-1:]:
        print("rank", world, "went on:", json.dumps(recovery._asdict()), flush=True)
    if state.recoveries and "then" in options:
        checkpoint.save(options["then"], state.driver, state.optimizer, {"step": state.step})
    while state.step < STEPS:
        until = min(STEPS, EPOCH * (state.step // EPOCH + 1))
        if getattr(state.driver, "roles", None) and not state.driver.roles.works:
            state.driver.serve()
        while state.step < until:
            if dies("bug", state.step):
                raise LookupError("a bug")
            try:
                step(state)
            except MPI.Exception as error:
                if kind == "ddp":
                    raise OSError("a step has failed") from error
                raise
            die("update", state.step)
            state.commit()
        if kind == "ps":
            state.driver.finish()
        if folder != "-":
            state.save()
    die("end", state.step)
    weight = state.driver.state_dict()["weight"] if kind == "fsdp" else state.driver.parameters["weight"]
    return weight.copy()

where = None if folder == "-" else folder
state = elastic.State(make, checkpoint=where, size=options.get("size"), every=options.get("every", 1))
try:
    weight = elastic.run(train, state)
except RuntimeError as error:
    print("rank", world, "gave up:", error, flush=True)
    os._exit(3)
if where:
    assert checkpoint.load(where, state.driver, state.optimizer) == {"step": STEPS}
if "then" in options:
    alone = elastic.State(make, comm=state.comm, checkpoint=options["then"])
    assert 0 < checkpoint.load(options["then"], state.driver)["step"] < STEPS
    np.testing.assert_array_equal(elastic.run(train, alone), weight)
if state.comm.rank == 0:
    print("ends with", state.comm.size, "ranks, error", abs(weight.ravel() - [1, 2, 3]).max(), flush=True)
if options.get("exits", True):
    state.comm.Agree(0)
    os._exit(0)  # MPI_Finalize may hang after failures, and then `elastic` ends the process after ten seconds
"""


def train(kind, dying, folder="-", ranks=4, environment=None, **options):
    """Train in a job; `dying` has pairs of a rank and a step for each moment."""
    program = ["-c", PROGRAM, kind, str(folder), json.dumps(dying), json.dumps(options)]
    job = run(ranks, program, 120, options=ULFM, environment=environment)
    assert not job.timed_out and job.left == [], job.output
    return job


def recoveries(job, ranks, step=None, error=1e-3):
    """Check that training ended well; return what happened on each rank."""
    assert job.code == 0, job.output
    ended = re.search(r"ends with (\d) ranks, error (\S+)", job.output)
    assert ended and int(ended[1]) == ranks and float(ended[2]) < error, job.output
    found = [json.loads(line) for line in re.findall(r"went on: (.*)", job.output)]
    assert found and all(recovery["seconds"] < 5 for recovery in found), job.output
    if step is not None:
        assert {recovery["step"] for recovery in found} == {step}, job.output
    return found


MOMENTS = {
    "ddp": {"forward": [[1, 10], [3, 10]], "recovery": [[5, 2]], "backward": [[0, 30]], "save": [[2, 50]]},
    "fsdp": {"forward": [[1, 10], [3, 10]], "recovery": [[5, 2]], "backward": [[0, 30]], "save": [[2, 50]]},
    "ps": {"forward": [[1, 10], [3, 10]], "recovery": [[5, 2]], "backward": [[0, 30]], "save": [[7, 50]]},
}
LATE = {"ddp": {"update": [[4, 70]]}, "fsdp": {"update": [[4, 70]]}, "ps": {"server": [[6, 70]]}}


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "ps"])
def test_killed_again_and_again(kind, tmp_path):
    """Two at once, one while the others recover, the first one, one in `save`, and one during or after an update."""
    found = recoveries(train(kind, MOMENTS[kind] | LATE[kind], tmp_path, 8), 2)
    assert {(recovery["failed"], recovery["ranks"]) for recovery in found} == {(3, 5), (1, 4), (1, 3), (1, 2)}
    for recovery in found:
        assert recovery["step"] - {5: 10, 4: 30, 3: 50, 2: 70}[recovery["ranks"]] in (-1, 0, 1)
        assert recovery["repeated"] <= 1
        assert recovery["ranks"] != 3 or recovery["step"] == 50


@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
def test_killed_in_the_middle_of_a_collective(kind):
    found = recoveries(train(kind, {"middle": [[2, 5]]}, more=2_000_000, steps=8), 3, error=9)
    assert {recovery["step"] for recovery in found} <= {5, 6}
    assert max(recovery["repeated"] for recovery in found) <= 1


@pytest.mark.parametrize("kind", ["fsdp", "ddp", "ps"])
def test_killed_after_the_last_step(kind):
    job = train(kind, {"end": [[1, 100]]}, exits=False)
    assert job.code == 0 and "ends with 3 ranks" in job.output, job.output


def test_two_neighbors_at_once_fall_back_on_the_checkpoint(tmp_path):
    recoveries(train("fsdp", {"forward": [[1, 70], [2, 70]]}, tmp_path), 2, step=50)


@pytest.mark.parametrize(
    "options",
    [{"servers": 2}, {"servers": 2, "colocated": True}, {"mode": "bounded", "staleness": 1}, {"mode": "async"}],
    ids=str,
)
def test_killed_server(options):
    victim = 0 if options.get("colocated") else 3
    found = recoveries(
        train("ps", {"server": [[victim, 50]]}, **options), 3, error=0.1 if options.get("mode") else 1e-3
    )
    if options.get("mode") != "async":  # then, fast workers repeat what the slowest one has not done
        assert max(recovery["repeated"] for recovery in found) <= 2 + options.get("staleness", 0)


@pytest.mark.parametrize("kind", ["fsdp", "ps"])
def test_copies_that_are_sent(kind):
    """As between hosts."""
    dying = {"update": [[0, 50]]} if kind == "fsdp" else {"server": [[3, 50]]}
    found = recoveries(train(kind, dying, environment={"PYCOLL_REGISTERED": "0"}), 3)
    assert max(recovery["repeated"] for recovery in found) <= 1


def test_workers_that_update():
    recoveries(train("ps", {"backward": [[1, 50]]}, update="worker"), 3)


def test_the_result_is_that_of_the_other_ranks_alone(tmp_path):
    """To the bit: as if training had been started on them from the same step."""
    recoveries(train("ddp", {"forward": [[1, 50]]}, then=str(tmp_path)), 3)


@pytest.mark.parametrize("kind", ["ddp", "ps"])
def test_an_error_of_the_program_ends_training_on_all_ranks(kind):
    """Even if a rank fails at the same time, and the program does not end at exceptions."""
    job = train(kind, {"bug": [[1, 50]], "update": [[2, 49]]}, abort=False)
    assert job.code != 0 and "LookupError: a bug" in job.output, job.output
    # rank 2 too, unless it fails first
    assert job.output.count("gave up: training has ended with an error on another rank") in (2, 3), job.output


def test_a_rank_that_hangs_is_named():
    job = train("ddp", {"forward": [[1, 50]]}, signal="SIGSTOP", environment={"PYCOLL_TIMEOUT": "2"})
    assert job.code != 0 and "rank 1" in job.output, job.output


@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
def test_new_processes_take_the_place_of_failed_ones(kind):
    found = recoveries(train(kind, {"forward": [[2, 50]]}, size=4, exits=False), 4)
    assert [(recovery["failed"], recovery["ranks"]) for recovery in found] == [(1, 4)] * 3


HANGS_AT_EXIT = """
import atexit, sys, time
from mpi4py import MPI
import numpy as np

if MPI.COMM_WORLD.rank == 1:
    atexit.register(time.sleep, 1000)  # registered first, so it is called last; the other ranks wait in MPI_Finalize
from pycoll.parallel import SGD, DistributedDataParallel, elastic

sys.modules["pycoll.parallel.elastic.run"].LONG_PATIENCE = 1.0

def make(comm):
    parameters = {"weight": np.zeros(3)}
    return DistributedDataParallel(parameters, comm=comm), SGD(parameters, lr=0.1)

elastic.run(lambda state: print("trained", flush=True), elastic.State(make))
"""


def test_a_rank_that_never_ends_mpi():
    """Without a failure before, MPI_Finalize waits for it; all processes end after a while."""
    job = run(3, ["-c", HANGS_AT_EXIT], 60, options=ULFM)
    assert not job.timed_out and job.output.count("trained") == 3, job.output
