"""Training goes on from what the other ranks have; here ranks leave without having failed, so that any MPI will do."""

import time

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.parallel import SGD, DistributedDataParallel, FullyShardedDataParallel, LocalSGD, elastic, save
from pycoll.parallel.elastic.replicas import NeighborCopies
from pycoll.runtime.failures import TOLERANT
from tests.mpi.native import RANK, SIZE
from tests.mpi.parallel.test_checkpoint import KINDS, alone, assert_close, assert_equal, model

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="nobody goes on if the only rank leaves")]

FIRST, LAST = 0, SIZE - 1


class Training:
    """Training of one kind with a state, from which ranks can leave."""

    def __init__(self, kind, optimizer="adam", **options):
        self.kind, self.optimizer, self.workers = kind, optimizer, []
        self.state = elastic.State(self.make, **options)
        self.old = []

    def make(self, comm):
        parameters = model(seed=2 if self.workers else 1)
        self.run = KINDS[self.kind](self.optimizer, comm=comm, parameters=parameters)
        return self.run.driver, self.run.optimizer

    def train(self, steps):
        for step in steps:
            self.workers.append(self.run.workers)
            self.run.train([step])
            serves = getattr(self.run.driver, "roles", None) and not self.run.driver.roles.works
            if not serves:
                self.state.commit()

    def go_on_without(self, gone, monkeypatch, finish=True, begin=True):
        """Let ranks leave; return whether this one goes on."""
        state = self.state
        if finish:
            state.finish()
        self.old += [one for one in (getattr(state, "driver", None), state.comm, state._neighbors) if one]
        monkeypatch.setattr(pycoll.Comm, "Shrink", lambda comm: comm.Split(0, comm.rank))
        if RANK in gone:
            state.comm.Split(MPI.UNDEFINED)
            return False
        state.recover()
        if begin:
            state.begin()
        return True

    def free(self):
        for one in self.old:
            one.Free() if isinstance(one, MPI.Comm) else one.free()


@pytest.mark.parametrize("gone", [FIRST, LAST])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "buffers" not in kind])
@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
def test_goes_on_without_a_rank(kind, optimizer, gone, monkeypatch):
    if "two" in kind and SIZE == 2:
        pytest.skip("one rank cannot be two servers")
    if kind == "ps pairs worker" and SIZE - gone == 2:
        pytest.skip("the only rank that updates leaves")
    if "dedicated" in kind and SIZE - 1 < 2 + ("two" in kind):
        pytest.skip("nobody would be left to work")
    training = Training(kind, optimizer)
    training.state.begin()
    training.train(range(5))
    if training.go_on_without({gone}, monkeypatch):
        state = training.state
        assert state.step == 5 and state.comm.size == SIZE - 1
        assert [recovery[:4] for recovery in state.recoveries] == [(1, SIZE - 1, 5, 0)]
        assert_close(training.run.whole(), alone(optimizer, training.workers))
        training.train(range(5, 8))
        assert state.step == 8
        assert_close(training.run.whole(), alone(optimizer, training.workers))
        state.finish()
        state.end()
    training.free()


def test_replicas_go_on_from_the_most_advanced_one(monkeypatch):
    training = Training("ddp buffers")
    training.state.begin()
    training.train(range(3))
    advanced = RANK == 1
    if advanced:  # the others have not got the averages of this step
        training.run.optimizer.step(model(seed=7))
        if SIZE > 2:
            training.state.commit()  # otherwise it is interrupted between the two calls
    if training.go_on_without({FIRST}, monkeypatch):
        assert training.state.step == 4
        expected = training.run.whole()
        pycoll.bcast(expected["hidden.weight"], comm=training.state.comm)
        assert_equal(training.run.whole(), expected)
        assert training.state.recoveries[-1].repeated == 0 and training.run.buffers["seen"].any()
        assert set(training.run.optimizer.steps.values()) == {4}
    training.free()


@pytest.mark.parametrize("steps, reached", [(0, 0), (2, 0), (3, 3), (5, 3), (6, 6)])
def test_shards_are_those_of_the_last_copy(steps, reached, monkeypatch):
    training = Training("fsdp", every=3)
    training.state.begin()
    training.train(range(steps))
    if training.go_on_without({LAST}, monkeypatch):
        assert training.state.step == reached
        assert training.state.recoveries[-1].repeated == steps - reached
        assert_close(training.run.whole(), alone("adam", training.workers[:reached]))
    training.free()


@pytest.mark.skipif(SIZE < 4, reason="the state of two ranks is lost only if others remain to notice")
@pytest.mark.parametrize("saved", [True, False])
def test_two_neighbors(saved, directory, monkeypatch):
    training = Training("fsdp", checkpoint=directory if saved else None)
    training.state.begin()
    training.train(range(2))
    if saved:
        training.state.save()
    training.train(range(2, 4))
    if saved:
        if training.go_on_without({1, 2}, monkeypatch):
            assert training.state.step == 2
            assert_close(training.run.whole(), alone("adam", [SIZE] * 2))
    elif RANK in {1, 2}:
        training.go_on_without({1, 2}, monkeypatch)
    else:
        with pytest.raises(RuntimeError, match="the state of rank 1 are lost, and there is no checkpoint"):
            training.go_on_without({1, 2}, monkeypatch)
    training.free()


def test_a_second_failure_before_all_have_the_state(monkeypatch):
    """The copies of the driver before are still there."""
    if SIZE < 3:
        pytest.skip("two ranks leave")
    training = Training("fsdp")
    training.state.begin()
    training.train(range(4))
    if training.go_on_without({LAST}, monkeypatch, begin=False):
        if RANK == 1 and SIZE > 3:
            training.state.comm.Split(MPI.UNDEFINED)
        elif SIZE > 3:
            training.state.recover()
            training.state.begin()
            assert training.state.step == 4 and training.state.recoveries[-1].failed == 2
            assert_close(training.run.whole(), alone("adam", [SIZE] * 4))
    training.free()


def test_copies_that_are_sent_are_kept_until_all_ranks_have_newer_ones(monkeypatch):
    """A rank may fail when its last copy has arrived, but other ranks are a step behind."""
    if SIZE < 3:
        pytest.skip("the rank that is behind must go on")
    monkeypatch.setattr(MPI, "Get_processor_name", lambda: f"host{RANK}")
    training = Training("fsdp")
    training.state.begin()
    training.train(range(3))
    training.run.train([3])
    if RANK != 1:
        training.state.commit()
    neighbors = training.state._neighbors
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:  # messages arrive meanwhile
        neighbors.progress()
    if training.go_on_without({LAST}, monkeypatch, finish=False):
        assert training.state.step == 3
        assert_close(training.run.whole(), alone("adam", [SIZE] * 3))
    training.free()


def test_failure_before_all_ranks_have_copies(monkeypatch):
    """Nothing is lost then: training begins again."""
    training = Training("fsdp")
    if RANK == LAST:
        monkeypatch.setattr(NeighborCopies, "take", lambda neighbors, step: None)
    monkeypatch.setattr(pycoll.Comm, "Barrier", _fails)
    with pytest.raises(MPI.Exception):
        training.state.begin()
    monkeypatch.undo()
    if training.go_on_without({LAST}, monkeypatch):
        assert training.state.step == 0
    # the communicators are not freed: MPI would give messages that nobody has received to a later one


def test_failed_ranks_are_replaced_even_if_others_failed_at_once(monkeypatch):
    """All ranks start new processes together, also those that had not got as far as to make a driver."""
    training, calls = Training("ddp", size=SIZE), []
    with monkeypatch.context() as patch:
        if RANK == 0:
            gather = pycoll.Comm.allgather
            patch.setattr(pycoll.Comm, "allgather", lambda comm, label: _fails(gather(comm, label)))
        patch.setattr(training.state, "_make", _fails)
        with pytest.raises(MPI.Exception):
            training.state.begin()
    monkeypatch.setattr(elastic.state, "replace", lambda comm, missing: (calls.append(missing), comm)[1])
    if training.go_on_without({LAST}, monkeypatch, finish=False):
        assert calls == [1]
    training.free()


def _fails(*arguments):
    raise MPI.Exception(MPI.ERR_PROC_FAILED)


def test_goes_on_from_the_checkpoint_at_the_start(directory):
    first = Training("ddp", checkpoint=directory)
    first.state.begin()
    first.train(range(3))
    first.state.save(epoch=1)
    second = Training("fsdp", checkpoint=directory)
    second.state.begin()
    assert second.state.step == 3
    assert_equal(second.run.whole(), first.run.whole())


@pytest.mark.parametrize("extra", [{"epochs": 1}, None])
def test_a_checkpoint_of_other_training(extra, directory):
    training = Training("ddp")
    training.state.begin()
    save(directory, training.state.driver, training.state.optimizer, extra)
    with pytest.raises(ValueError, match=f"{directory}: this checkpoint has no number of steps"):
        Training("ddp", checkpoint=directory).state.begin()
    training.state.driver.free()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_copies_have_the_arrays_and_the_counters(dtype):
    from pycoll.parallel.contents import Contents
    from pycoll.parallel.elastic.copies import Copier, Label, StateCopy

    arrays = {"w": np.arange(12).reshape(3, 4).astype(dtype), "b": np.ones(5, dtype), "scale": np.array(2, dtype)}
    with DistributedDataParallel(arrays) as driver:
        copier = Copier(Contents(driver))
        memory = np.empty(copier.frame.nbytes, np.uint8)
        copier.into(memory)(7)
        found = {
            (kind, name): piece for kind, name, piece in StateCopy(Label(1, 7, 0, (0,)), copier.frame, memory).pieces()
        }
    for name, array in arrays.items():
        piece = found["parameters", name]
        assert (piece.start, piece.shape) == (0, array.shape) and piece.values.dtype == array.dtype
        np.testing.assert_array_equal(piece.values, array.ravel())


@pytest.mark.filterwarnings("ignore:a rank that fails ends this job")
def test_copies_are_kept_only_if_they_can_be_used():
    training = Training("fsdp")
    assert elastic.run(lambda state: state._neighbors is not None, training.state) == TOLERANT
    training.state.driver.free()


@pytest.mark.parametrize("option", [{"every": 0}, {"size": 0}])
def test_wrong_options(option):
    name, value = next(iter(option.items()))
    with pytest.raises(ValueError, match=f"{name}={value} is not a positive number"):
        elastic.State(lambda comm: (FullyShardedDataParallel({}, comm=comm), None), **option)


@pytest.mark.parametrize("kind", ["driver", "local", "nothing"])
def test_wrong_drivers(kind):
    def make(comm):
        if kind == "nothing":
            return None
        driver = (
            LocalSGD(model(), every=2, comm=comm) if kind == "local" else DistributedDataParallel(model(), comm=comm)
        )
        return driver if kind == "driver" else (driver, None)

    with pytest.raises(TypeError, match="make must return a driver"):
        elastic.State(make).begin()


def test_saving_needs_a_directory():
    training = Training("ddp")
    training.state.begin()
    with pytest.raises(RuntimeError, match="without a directory"):
        training.state.save()
    training.state.driver.free()


def test_an_update_of_some_parameters_that_one_rank_has_done(monkeypatch):
    """Replicas are not of the same step if one has updated parameters that the last steps left out."""
    made = []

    def make(comm):
        made.append({"a": np.ones(2), "b": np.ones(2)})
        return DistributedDataParallel(made[-1], comm=comm, find_unused=True), SGD(made[-1], lr=0.1)

    state = elastic.State(make)
    state.begin()
    for _ in range(2):
        state.driver.ready("a", np.ones(2))
        state.optimizer.step(state.driver.synchronize())
        state.commit()
    state.driver.ready("b", np.ones(2))
    gradients = state.driver.synchronize()
    if RANK == FIRST:
        state.optimizer.step(gradients)  # the others learn of a failure before their update
    old = state.driver, state.comm
    monkeypatch.setattr(pycoll.Comm, "Shrink", lambda comm: comm.Split(0, comm.rank))
    state.recover()
    state.begin()
    assert state.step == 3
    np.testing.assert_array_equal(made[-1]["b"], [0.9, 0.9])
    state.end()
    state.driver.free()
    old[0].free()
    old[1].Free()
