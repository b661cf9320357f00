"""DistributedDataParallel on ranks that have different numbers of batches."""

import pytest

from tests.mpi.native import RANK, SIZE

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.mpi


def test_gradients_are_divided_by_the_number_of_ranks_that_still_train(world):
    layer = torch.nn.Linear(1, 1, bias=False)
    model = torch.nn.parallel.DistributedDataParallel(layer)
    with model.join(divide_by_initial_world_size=False):
        for step in range(RANK + 1):
            layer.weight.grad = None
            (model(torch.ones(1, 1)) * (RANK + 1)).sum().backward()
            training = range(step, SIZE)
            assert layer.weight.grad.item() == pytest.approx(sum(rank + 1 for rank in training) / len(training))
