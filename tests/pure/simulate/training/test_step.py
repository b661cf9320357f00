"""Simulated training steps whose times can be computed by hand."""

import time

import pytest

from pycoll.schedule.pipeline import SCHEDULES
from pycoll.simulate import Link, Network
from pycoll.simulate.training import Groups, How, Layer, Model, simulate_step

BETA = 1e-9  # the only cost of communication
NETWORK = Network(between=Link(0.0, BETA), inside=Link(0.0, BETA), gamma=0.0)
F, B, PARAMETERS = 0.010, 0.020, 1 << 20
Z = 4 * PARAMETERS


def model(layers=4, activation=0, **more):
    return Model("m", (Layer("layer", PARAMETERS, activation, F, B, repeat=layers, **more),))


def step(mesh, how=None, given=None, **where):
    return simulate_step(given or model(), Groups(mesh, NETWORK, algorithms={}, **where), how)


def ring(ranks, nbytes=Z):
    return 2 * (ranks - 1) / ranks * nbytes * BETA


def test_a_rank_alone_only_computes():
    found = step({"dp": 1})
    assert found.time == pytest.approx(4 * (F + B)) and not found.collectives and not found.bubble
    assert step({"dp": 1}, How(micro_batches=3)).time == pytest.approx(3 * found.time)


def test_without_overlap_the_averaging_is_added():
    found = step({"dp": 4}, How(overlap=False))
    assert found.time == pytest.approx(4 * (F + B) + 4 * ring(4), rel=1e-6)
    assert found.mean("data parallel") == pytest.approx(4 * ring(4), rel=1e-6)


def test_only_the_last_bucket_is_not_overlapped():
    found = step({"dp": 4}, How(micro_batches=2, bucket=Z))
    assert ring(4) < B  # each bucket is averaged during the backward pass of the next layer
    assert found.time == pytest.approx(8 * (F + B) + ring(4), rel=1e-6)
    assert step({"dp": 4}, How(bucket=2 * Z)).time == pytest.approx(4 * (F + B) + 2 * ring(4), rel=1e-6)


def test_a_slow_network_delays_the_end_by_all_that_is_left():
    slow = model(layers=2)
    found = simulate_step(slow, Groups({"dp": 4}, Network(Link(0.0, 100 * BETA), gamma=0.0)), How(bucket=1))
    assert found.time == pytest.approx(2 * F + B + 2 * 100 * ring(4), rel=1e-6)


@pytest.mark.parametrize("batches", [4, 8])
@pytest.mark.parametrize("name", SCHEDULES)
def test_bubbles_are_those_of_the_formulas(name, batches):
    chunks = 2 if name == "interleaved" else 1
    found = step({"pp": 4}, How(batches, name, chunks), model(layers=8))
    assert found.bubble / found.time == pytest.approx(SCHEDULES[name].bubble(4, batches, chunks))
    assert found.mean("computing") == pytest.approx(2 * batches * (F + B))


def test_activations_delay_the_next_stage():
    nbytes = 1 << 20
    found = step({"pp": 2}, How(), model(layers=2, activation=nbytes))
    assert found.time == pytest.approx(2 * (F + B) + 2 * nbytes * BETA)
    assert [stage.seconds["pipeline"] for stage in found.stages] == pytest.approx([nbytes * BETA] * 2)


def test_the_gradient_of_an_activation_is_as_large_as_the_activation():
    layers = Layer("a", 1, 1000, F, B), Layer("b", 1, 2000, F, B), Layer("c", 1, 3000, F, B)
    found = step({"pp": 3}, How(), Model("m", layers))
    sent = [(stage.number, span.nbytes) for stage in found.stages for span in stage.spans if span.stream == "pipeline"]
    assert sorted(sent) == [(0, 1000), (1, 1000), (1, 2000), (2, 2000)]


def test_tensor_parallel_ranks_divide_the_computation_and_reduce_activations():
    nbytes = 1 << 20
    found = step({"tp": 4}, How(micro_batches=2), model(activation=nbytes, tensor_allreduces=2))
    assert found.mean("computing") == pytest.approx(2 * 4 * (F + B) / 4)
    assert found.mean("tensor parallel") == pytest.approx(2 * 4 * 4 * ring(4, nbytes), rel=1e-6)
    assert found.time == pytest.approx(found.mean("computing") + found.mean("tensor parallel"))
    assert step({"tp": 4}).time == pytest.approx(4 * (F + B))  # these layers are not divided


def test_gradients_of_divided_layers_are_divided():
    found = step({"dp": 2, "tp": 2}, How(bucket=1), model(tensor_allreduces=1))
    assert {each.nbytes for each in found.collectives if each.axis == "dp"} == {Z // 2}


def test_sharded_layers_are_gathered_for_each_pass():
    found = step({"fsdp": 4}, How(micro_batches=2))
    names = [span.name.partition(".")[0] for span in found.stages[0].spans if span.stream == "data parallel"]
    # The last layer of a forward pass is still there for the backward pass, and so is its neighbor; after a backward
    # pass, these are the first two layers.
    assert names.count("reduce_scatter") == 8 and names.count("allgather") == 4 + 2 + 2 + 2
    half = ring(4) / 2
    assert found.time == pytest.approx(8 * (F + B) + 2 * half, rel=1e-6)  # the first gathering, the last reduction
    assert {each.nbytes for each in found.collectives} == {Z}


def test_the_optimizer_comes_last():
    given = Model("m", model().layers, optimizer=0.5)
    found = step({"dp": 4}, given=given)
    assert found.stages[0].spans[-1].name == "optimizer" and found.mean("optimizer") == 0.5
    assert found.time == pytest.approx(step({"dp": 4}).time + 0.5)


def test_samples_and_utilization():
    given = Model("m", (Layer("a", 0, 0, flops=1e9, repeat=2),), micro_batch=4, speed=1e12, peak=2e12)
    found = step({"dp": 3, "pp": 2}, How(micro_batches=8), given)
    assert found.samples == 3 * 8 * 4
    assert found.utilization == pytest.approx(0.5 * 8 / 9)  # half of the peak while no stage waits


@pytest.mark.parametrize(
    "mesh, how, message",
    [
        ({"pp": 5}, How(), "4 layers cannot be divided into 5 stages"),
        ({"tp": 3}, How(), "tp=3 does not divide the 1048576 parameters of layer 'layer'"),
        ({"pp": 2}, How(schedule="2f2b"), "schedule '2f2b' is unknown"),
        ({"pp": 2}, How(3, "interleaved", 2), "not a multiple of 2 stages"),
        ({"pp": 2}, How(0), "micro-batches is 0"),
        ({"dp": 2}, How(10**9), "1000000000 micro-batches of all layers are 4000000000 passes, more than 4194304"),
    ],
)
def test_wrong_numbers_are_errors(mesh, how, message):
    with pytest.raises(ValueError, match=message):
        step(mesh, how, model(tensor_allreduces=1))


def test_a_step_without_time_is_an_error():
    with pytest.raises(ValueError, match="a step of model 'm' takes no time: no layer has seconds, flops or messages"):
        step({"dp": 2}, given=Model("m", (Layer("a", 0, 0),)))


def test_sixteen_thousand_ranks_take_seconds():
    pytest.importorskip("pycoll.simulate.events", reason="nothing was compiled")
    given = model(layers=16, activation=1 << 22, tensor_allreduces=2)
    start = time.process_time()
    found = step({"dp": 512, "pp": 8, "tp": 4}, How(16), given, ranks_per_host=8)
    assert time.process_time() - start < 30
    assert found.samples == 512 * 16 and 0 < found.bubble < found.time
