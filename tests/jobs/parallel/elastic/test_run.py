"""Ranks are killed at chosen moments of training, and the others go on."""

import json
import re

import numpy as np
import pytest

from tests.jobs.runtime.test_attach_revoke import ULFM, fault_tolerant
from tests.launch import run

STEPS = 120

PROGRAM = """
import json, os, signal, sys, threading
from functools import partial
import numpy as np
from mpi4py import MPI
import pycoll
from pycoll.parallel import SGD, DistributedDataParallel, FullyShardedDataParallel, ParameterServer, checkpoint, elastic

kind, moment, victims, folder, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4], sys.argv[5]
options = json.loads(options)
AT, STEPS = options.get("at", 50), 120
world = MPI.COMM_WORLD.rank if MPI.Comm.Get_parent() == MPI.COMM_NULL else -1
inputs = np.random.default_rng(0).random((1000, 3))
targets = inputs @ [[1.0], [2.0], [3.0]]
pycoll.abort_on_exception()
builds = 0

def die(now, step=AT):
    doomed = victims if now == moment else []
    if moment == "recovery":
        doomed = {"forward": victims[:1], "recovery": victims[1:]}.get(now, [])
    if world in doomed and step == AT:
        os.kill(os.getpid(), signal.SIGKILL)

class Optimizer(SGD):
    def step(self, gradients):
        super().step(gradients)
        die("server", max(self.steps.values()))

write = checkpoint.write_atomically

def half(path, function):
    if moment == "save" and world in victims and state.step > AT:
        path.with_name(path.name + "x.tmp").write_bytes(b"half")
        die("save")
    write(path, function)

checkpoint.write_atomically = half

def make(comm):
    global builds
    builds += 1
    if builds == 2:
        die("recovery")
    optimizer = partial(Optimizer, lr=0.5, momentum=0.5)
    parameters = {"weight": np.zeros((3, 1)), "more": np.ones(options.get("more", 5))}
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
    driver, rank, size = state.driver, state.comm.rank, state.comm.size
    zeros = np.zeros(options.get("more", 5))
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
    if moment == "middle" and world in victims and state.step == AT:
        threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGKILL)).start()
    state.optimizer.step(driver.synchronize())

def train(state):
    if state.comm.rank == 0:
        print("begins after step", state.step, flush=True)
    for recovery in state.recoveries[-1:]:
        print("rank", world, "went on:", json.dumps(recovery._asdict()), flush=True)
    if state.recoveries and options.get("then"):
        checkpoint.save(f"{folder}/then", state.driver, state.optimizer, {"step": state.step})
    while state.step < STEPS:
        until = min(STEPS, 60 * (state.step // 60 + 1))
        if getattr(state.driver, "roles", None) and not state.driver.roles.works:
            state.driver.serve()
        while state.step < until:
            if moment == "bug" and world in victims and state.step == AT:
                raise LookupError("a bug")
            try:
                step(state)
            except MPI.Exception as error:
                if options.get("own_error"):
                    raise OSError("a step has failed") from error
                raise
            die("update", state.step)
            state.commit()
        if kind == "ps":
            state.driver.finish()
        if folder != "-" and not options.get("then"):
            state.save()
    die("end")
    weight = state.driver.state_dict()["weight"] if kind == "fsdp" else state.driver.parameters["weight"]
    return weight.copy()

where = None if folder == "-" else options.get("from", folder + "/saved")
state = elastic.State(make, checkpoint=where, size=options.get("size"), every=options.get("every", 1))
try:
    weight = elastic.run(train, state)
except RuntimeError as error:
    print("rank", world, "gave up:", error, flush=True)
    os._exit(3)
if state.comm.rank == 0:
    print("ends with", state.comm.size, "ranks, error", abs(weight.ravel() - [1, 2, 3]).max(), flush=True)
    if folder != "-":
        np.save(f"{folder}/weight{options.get('name', '')}.npy", weight)
"""


@pytest.fixture(autouse=True)
def _ulfm():
    if not fault_tolerant():
        pytest.skip("this MPI cannot go on after a rank has died (mpiexec has no --with-ft ulfm)")


def train(kind, moment, victims, folder="-", ranks=4, environment=None, **options):
    program = ["-c", PROGRAM, kind, moment, json.dumps(victims), str(folder), json.dumps(options)]
    job = run(ranks, program, options=ULFM, environment=environment)
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


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "ps"])
@pytest.mark.parametrize("moment", ["forward", "backward", "update"])
def test_killed_within_a_step(kind, moment):
    found = recoveries(train(kind, moment, [1]), 3)
    assert {recovery["failed"] for recovery in found} == {1}
    assert {recovery["step"] for recovery in found} <= {49, 50, 51}
    assert max(recovery["repeated"] for recovery in found) <= 1


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_killed_in_the_middle_of_a_collective(kind):
    found = recoveries(train(kind, "middle", [2], more=4_000_000), 3)
    assert {recovery["step"] for recovery in found} <= {50, 51}
    assert max(recovery["repeated"] for recovery in found) <= 1


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "ps"])
def test_the_first_rank(kind):
    recoveries(train(kind, "forward", [0]), 3)


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "ps"])
def test_killed_after_the_last_step(kind):
    job = train(kind, "end", [1])
    assert job.code == 0 and "ends with 3 ranks" in job.output, job.output


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "ps"])
def test_killed_in_save(kind, tmp_path):
    """The checkpoint before is intact, and later ones are written."""
    writes = {"ddp": 0, "fsdp": 1, "ps": 3}[kind]  # a rank that writes
    recoveries(train(kind, "save", [writes], tmp_path), 3, step=60)
    job = train(kind, "never", [], tmp_path, ranks=2)  # from the last checkpoint, so there is nothing left to do
    assert job.code == 0 and "ends with 2 ranks" in job.output, job.output


def test_two_replicas_at_once():
    assert recoveries(train("ddp", "backward", [0, 2]), 2)[0]["failed"] == 2


def test_two_shards_at_once_that_are_not_neighbors():
    assert recoveries(train("fsdp", "forward", [0, 2]), 2, step=50)


def test_two_neighbors_at_once_fall_back_on_the_checkpoint(tmp_path):
    assert train("fsdp", "never", [], tmp_path, name="whole").code == 0
    (tmp_path / "saved" / "manifest.json").unlink()
    job = train("fsdp", "forward", [1, 2], tmp_path)
    assert job.code == 3 and job.output.count("the state of rank 1 are lost, and there is no checkpoint") == 2


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_killed_during_a_recovery(kind):
    found = recoveries(train(kind, "recovery", [1, 3]), 2)
    assert {recovery["step"] for recovery in found} <= {49, 50}
    assert sum(recovery["failed"] for recovery in found) == 2 * 2


@pytest.mark.parametrize(
    "options",
    [{"servers": 2}, {"servers": 2, "colocated": True}, {"mode": "async"}, {"mode": "bounded", "staleness": 1}],
    ids=str,
)
def test_killed_server(options):
    victim = 0 if options.get("colocated") else 3
    found = recoveries(train("ps", "server", [victim], **options), 3, error=2 if options.get("mode") else 1e-3)
    if options.get("mode") != "async":  # then, fast workers repeat what the slowest one has not done
        assert max(recovery["repeated"] for recovery in found) <= 2 + options.get("staleness", 0)


@pytest.mark.parametrize("kind, moment, victim", [("fsdp", "update", 0), ("ps", "server", 3)])
def test_copies_that_are_sent(kind, moment, victim):
    """As between hosts."""
    found = recoveries(train(kind, moment, [victim], environment={"PYCOLL_REGISTERED": "0"}), 3)
    assert max(recovery["repeated"] for recovery in found) <= 1


def test_workers_that_update():
    recoveries(train("ps", "backward", [1], update="worker"), 3)


def test_errors_that_the_program_raises_from_those_of_mpi():
    recoveries(train("ddp", "forward", [1], own_error=True), 3)


def test_the_result_is_that_of_the_other_ranks_alone(tmp_path):
    """To the bit: as if training had been started on them from the same step."""
    found = recoveries(train("ddp", "forward", [1], tmp_path, then=True, name="killed"), 3)
    job = train("ddp", "never", [], tmp_path, ranks=3, **{"from": f"{tmp_path}/then", "name": "alone", "then": True})
    assert job.code == 0, job.output
    assert found[0]["step"] < STEPS
    killed, alone = (np.load(tmp_path / f"weight{name}.npy") for name in ("killed", "alone"))
    np.testing.assert_array_equal(killed, alone)


@pytest.mark.parametrize("kind", ["ddp", "ps"])
def test_an_error_of_the_program_ends_training_on_all_ranks(kind):
    job = train(kind, "bug", [1])
    assert job.code != 0 and "LookupError: a bug" in job.output, job.output
    assert job.output.count("gave up: training has ended with an error on another rank") == 3, job.output


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_new_processes_take_the_place_of_failed_ones(kind):
    found = recoveries(train(kind, "forward", [2], size=4), 4)
    assert [(recovery["failed"], recovery["ranks"]) for recovery in found] == [(1, 4)] * 3
