"""A process group of pycoll, and one of gloo with the same ranks, whose results are compared."""

import pytest

try:
    import torch
    import torch.distributed as dist

    import pycoll.torch  # noqa: F401  (registers the backend)
except ModuleNotFoundError:
    pass  # all modules are skipped


@pytest.fixture(scope="session")
def world():
    """Initialize torch.distributed with pycoll; the group of gloo is created by `compare`."""
    dist.init_process_group("pycoll")
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def gloo(world):
    return dist.new_group(backend="gloo")


@pytest.fixture
def compare(world, gloo):
    """Return a function that runs a case with both groups, and compares the tensors that it returns.

    The case gets the group.  Sums of floating-point numbers depend on the order with more than two ranks.
    """

    def run(case):
        results = []
        for group in (world, gloo):
            torch.manual_seed(dist.get_rank())
            results.append(case(group))
        for ours, expected in zip(*results, strict=True):
            rounded = dist.get_world_size() > 2 and (ours.is_floating_point() or ours.is_complex())
            if rounded:
                close = {"rtol": 0.05, "atol": 0.1} if ours.dtype.itemsize == 2 else {"rtol": 1e-4, "atol": 1e-4}
                torch.testing.assert_close(ours, expected, **close)
            else:
                assert torch.equal(ours, expected), f"{ours} is not {expected}"

    return run
