"""Measures the layers of a PyTorch model for the simulation of its training step."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any

from .model import Layer, Model

if TYPE_CHECKING:
    import torch


def profile(model: torch.nn.Sequential, batch: torch.Tensor, name: str = "model", repeats: int = 5) -> Model:
    """Measure both passes of each layer on one device.

    Parameters
    ----------
    model : torch.nn.Sequential
        The layers.  A layer has one input and one output, and parameters of one type.
    batch : torch.Tensor
        A micro-batch: the input of the first layer, on the device of the model.
    name : str
        The name of the model.
    repeats : int
        The number of measurements; the times are medians.  One more pass warms up.

    Returns
    -------
    Model
        The model, which `pycoll.simulate.training.write` writes.  Its layers have no tensor parallelism: set
        `Layer.tensor_allreduces` for layers that are to be divided.
    """
    layers, values = [], batch.detach()
    for title, layer in model.named_children():
        parameters = list(layer.parameters())
        times = [_passes(layer, values) for _ in range(repeats + 1)][1:]
        output = layer(values).detach()
        dtype = str(parameters[0].dtype if parameters else output.dtype).removeprefix("torch.")
        forward, backward = map(median, zip(*times))
        count, nbytes = sum(each.numel() for each in parameters), output.numel() * output.element_size()
        layers.append(Layer(title, count, nbytes, forward, backward, dtype=dtype))
        values = output
    model.zero_grad()
    return Model(name, tuple(layers), micro_batch=len(batch))


def _passes(layer: Any, values: torch.Tensor) -> tuple[float, float]:
    """Return the seconds of the forward and of the backward pass of a layer."""
    values = values.detach().requires_grad_(values.is_floating_point())  # tokens have no gradient
    output, forward = _timed(lambda: layer(values), values)
    if not output.requires_grad:
        return forward, 0.0
    gradient = output.detach().clone()
    return forward, _timed(lambda: output.backward(gradient), values)[1]


def _timed(call: Callable[[], Any], values: torch.Tensor) -> tuple[Any, float]:
    """Return the result of a call, and its seconds until the device of `values` is done."""
    import torch

    wait = torch.cuda.synchronize if values.is_cuda else lambda: None
    wait()
    start = time.perf_counter()
    result = call()
    wait()
    return result, time.perf_counter() - start
