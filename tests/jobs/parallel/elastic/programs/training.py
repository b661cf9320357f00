"""Elastic training with drivers of each kind; ranks fail at the given moments."""

import json
import os
import signal
import sys
import threading
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
