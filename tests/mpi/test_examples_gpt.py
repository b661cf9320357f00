"""The GPT in examples/gpt: gradients by finite differences."""

import numpy as np
import pytest
from mpi4py import MPI

from examples.gpt.model import LENGTH, TOKENS, Gpt, Settings
from pycoll.parallel import Mesh
from tests.derivatives import slope
from tests.mpi.native import SIZE

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE > 2, reason="each rank does the same")]


@pytest.mark.parametrize("experts", [0, 4])
def test_gradients_by_finite_differences(experts):
    numbers = np.random.default_rng(5)
    inputs, targets = numbers.integers(TOKENS, size=(2, 3, LENGTH))
    with Mesh(MPI.COMM_SELF, dp=1, ep=1, pp=1, sp=1, tp=1) as mesh:
        gpt = Gpt(mesh, Settings(experts=experts))
        for parameter in gpt.parameters.values():
            parameter += 0.1 * numbers.normal(size=parameter.shape)
        (stage,) = gpt.pipeline.chunks

        def loss():
            """Return the loss, and the auxiliary loss of experts, whose gradient is added in the backward pass."""
            y, saved = stage.forward(inputs)
            return gpt.loss(y, targets)[0] + auxiliary(saved)

        def auxiliary(saved):
            return sum(map(auxiliary, saved)) if isinstance(saved, list) else getattr(saved, "loss", 0.0)

        _, gradients = gpt.learn(inputs, targets)
        gradients = {name: gradient.copy() for name, gradient in gradients.items()}
        assert gradients.keys() == gpt.parameters.keys()
        for name, parameter in gpt.parameters.items():
            expected, direction = slope(loss, parameter)
            assert np.vdot(gradients[name], direction) == pytest.approx(expected, rel=1e-4, abs=1e-7), name
        gpt.free()
