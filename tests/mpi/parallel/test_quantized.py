"""All-reduce with 8-bit numbers: the bound of the error, equal bits, bytes, special numbers, training."""

import re

import numpy as np
import pytest

import pycoll
from pycoll.parallel import SGD, DistributedDataParallel, Quantize, quantized_allreduce
from pycoll.parallel.flat import named_dtype
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi


def contributions(count, dtype, seed=1):
    """Return vectors of all ranks, whose magnitudes differ between blocks and ranks."""
    numbers = np.random.default_rng(seed)
    return (numbers.normal(size=(SIZE, count)) * 10.0 ** numbers.integers(-3, 3, (SIZE, count))).astype(dtype)


def half_spacing(dtype, numbers):
    """Return the largest error of numbers that are rounded to a dtype."""
    info = pytest.importorskip("ml_dtypes").finfo(dtype)
    return np.maximum(float(info.eps) * np.abs(numbers), float(info.smallest_subnormal)) / 2


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("block", [1, 8, 256])
@pytest.mark.parametrize("count", [1, 7, 256 * SIZE, 256 * SIZE + 1, 5000])
def test_the_error_is_below_its_bound(count, block, dtype):
    dtype = named_dtype(dtype)
    all_ranks = contributions(count, dtype)
    found = quantized_allreduce(all_ranks[RANK], block=block)
    assert found.dtype == dtype
    assert len(set(WORLD.allgather(found.tobytes()))) == 1
    exact = all_ranks.astype(np.float64).sum(0)
    error = np.abs(found.astype(np.float64) - exact)
    rows = np.vstack([np.abs(all_ranks).astype(np.float64), np.abs(exact) + error])
    padded = np.pad(rows, ((0, 0), (0, -count % block))).reshape(SIZE + 1, -1, block)
    bound = np.repeat(padded.max(2).sum(0) / 254, block)[:count]
    rounding = 1e-6 * np.abs(all_ranks).astype(np.float64).sum(0) + half_spacing(dtype, np.abs(exact) + error)
    assert (error <= 1.001 * bound + rounding).all()
    if block == 256 and count > block:
        assert error.max() > 0.01 * bound.max()  # it is rounded


@pytest.mark.parametrize("largest", [1e-2, 1e-4, 1e-5, 3e-6, 1e-6])
def test_small_numbers_of_half_precision(largest):
    """The bound holds for numbers whose scale is not a number of the dtype."""
    array = np.linspace(-largest, largest, 256).astype(np.float16)
    exact = SIZE * array.astype(np.float64)
    bound = 2.001 * np.abs(exact).max() / 254
    assert (np.abs(quantized_allreduce(array) - exact) <= bound + half_spacing(np.float16, exact) * 1.01).all()


def test_half_precision_overflows_no_sooner_than_the_average():
    with DistributedDataParallel({"a": np.zeros(4, np.float16)}, hook=Quantize()) as driver:
        averages = driver.average_gradients({"a": np.full(4, 40_000, np.float16)})
        np.testing.assert_allclose(averages["a"], 40_000, rtol=0.01)


def test_arrays_of_any_shape():
    array = np.full((3, 1, 5), RANK + 1.0)
    found = quantized_allreduce(array)
    np.testing.assert_allclose(found, np.full((3, 1, 5), SIZE * (SIZE + 1) / 2), rtol=1e-6)
    assert (array == RANK + 1.0).all()


def test_zeros_and_special_numbers():
    array = np.zeros(64)
    assert not quantized_allreduce(array, block=8).any()
    if RANK == SIZE - 1:
        array[8], array[40] = np.inf, np.nan
    found = quantized_allreduce(array, block=8)
    assert np.isnan(found[8:16]).all()
    assert np.isnan(found[40:48]).all()
    assert not found[:8].any()
    assert not found[48:].any()


def test_bytes_are_those_of_the_docstring():
    count, block = 8192 * SIZE, 256
    with pycoll.traffic() as sent:
        quantized_allreduce(np.ones(count), block=block)
    text = re.search(r"Sent, on average: (.*?), for", quantized_allreduce.__doc__).group(1)
    assert WORLD.allreduce(sent.nbytes) / SIZE == eval(text, {"p": SIZE, "n": count, "block": block})


def test_hook():
    """Check that DDP averages with the hook, and that a model learns with it."""
    start = {"a": np.zeros((30, 7)), "b": np.zeros(11)}
    with DistributedDataParallel(start, hook=Quantize(16), bucket_bytes=256) as driver:
        optimizer = SGD(driver.parameters, lr=0.1)
        target = {name: np.random.default_rng(3).normal(size=array.shape) for name, array in start.items()}
        for step in range(100):
            noise = np.random.default_rng([step, RANK])
            for name in reversed(list(start)):
                parameter = driver.parameters[name]
                driver.ready(name, parameter - target[name] + 0.01 * noise.normal(size=parameter.shape))
            optimizer.step(driver.synchronize())
        for name, parameter in driver.parameters.items():
            np.testing.assert_allclose(parameter, target[name], atol=0.05)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="block=0 is not a positive"):
        Quantize(0)
    with pytest.raises(ValueError, match="block=-1 is not a positive"):
        quantized_allreduce(np.ones(1), block=-1)
    with pytest.raises(TypeError, match="sendbuf has dtype int64 and cannot be quantized"):
        quantized_allreduce(np.ones(1, np.int64))
