"""Models as the simulation of a training step sees them: layers with sizes and times, read from JSON files."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from ...base.files import write_json

ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}  # bytes


class InvalidModel(ValueError):
    """Raised if a model is not valid; the message says why."""


@dataclass(frozen=True)
class Layer:
    """A layer of a model, with the times of one micro-batch on one device.

    Parameters
    ----------
    name : str
        The name.
    parameters : int
        The number of parameters.
    activation : int
        The bytes of its output, which a pipeline sends to the next stage.
    forward, backward : float
        The seconds of both passes.
    flops : float
        The floating-point operations of the forward pass.  The backward pass has twice as many.  They replace times of
        0, and give the utilization.
    tensor_allreduces : int
        The all-reduces of the activation over the tensor-parallel ranks in each of both passes.  A layer with none is
        not divided over these ranks.
    dtype : str
        The type of parameters and gradients, one of `ITEMSIZE`.
    repeat : int
        The number of such layers in sequence.

    Raises
    ------
    InvalidModel
        If a number is negative or not finite, or the type is unknown.
    """

    name: str
    parameters: int
    activation: int
    forward: float = 0.0
    backward: float = 0.0
    flops: float = 0.0
    tensor_allreduces: int = 0
    dtype: str = "float32"
    repeat: int = 1

    def __post_init__(self) -> None:
        _check(self, f"layer {self.name!r}")
        if self.dtype not in ITEMSIZE:
            raise InvalidModel(f"layer {self.name!r}: dtype={self.dtype!r} is not one of: {', '.join(ITEMSIZE)}")

    @property
    def nbytes(self) -> int:
        """The bytes of the parameters, and of their gradients."""
        return self.parameters * ITEMSIZE[self.dtype]


@dataclass(frozen=True)
class Model:
    """A model to train.

    Parameters
    ----------
    name : str
        The name.
    layers : sequence of Layer
        The layers in forward order.
    micro_batch : int
        The number of samples in a micro-batch.
    speed : float
        The floating-point operations per second that a device reaches, for layers without times.
    peak : float
        The floating-point operations per second of its data sheet, for the utilization.
    optimizer : float
        The seconds of the optimizer in a step.

    Raises
    ------
    InvalidModel
        If a number is out of range, or a layer has neither times nor operations.
    """

    name: str
    layers: tuple[Layer, ...]
    micro_batch: int = 1
    speed: float = 0.0
    peak: float = 0.0
    optimizer: float = 0.0

    def __post_init__(self) -> None:
        _check(self, f"model {self.name!r}")
        if not self.layers:
            raise InvalidModel(f"model {self.name!r} has no layers")
        for layer in self.layers:
            if layer.flops and not layer.forward and not self.speed:
                raise InvalidModel(f"layer {layer.name!r} has flops, but no seconds: the model needs a speed")

    def expanded(self) -> list[Layer]:
        """Return all layers, repeated and with times."""
        return [self._timed(layer) for layer in self.layers for _ in range(layer.repeat)]

    def _timed(self, layer: Layer) -> Layer:
        if layer.forward or layer.backward or not layer.flops:
            return layer
        return Layer(**{**asdict(layer), "forward": layer.flops / self.speed, "backward": 2 * layer.flops / self.speed})

    @property
    def flops(self) -> float:
        """The operations of both passes of a micro-batch."""
        return 3 * sum(layer.flops * layer.repeat for layer in self.layers)


def _check(owner: Layer | Model, name: str) -> None:
    """Raise InvalidModel unless all numbers are finite, not negative, and integers where required."""
    for each in fields(owner):
        value, least = getattr(owner, each.name), 1 if each.name in ("repeat", "micro_batch") else 0
        if each.type in ("int", "float"):
            kind: Any = Integral if each.type == "int" else Real
            if not isinstance(value, kind) or not least <= value < math.inf:
                what = "an integer" if each.type == "int" else "a finite number"
                raise InvalidModel(f"{name}: {each.name}={value!r} is not {what} of at least {least}")


def write(model: Model, path: str | Path) -> None:
    """Write a model as JSON, without values that are the defaults."""
    write_json(path, {**_given(model), "layers": [_given(layer) for layer in model.layers]})


def _given(owner: Layer | Model) -> dict[str, Any]:
    return {each.name: value for each in fields(owner) if (value := getattr(owner, each.name)) != each.default}


def read(path: str | Path) -> Model:
    """Read a model that `write` or a text editor wrote.

    Raises
    ------
    InvalidModel
        If the file is not a model.
    OSError
        If there is no such file.
    """
    try:
        document = _object(json.loads(Path(path).read_text()), Model, "the top level")
        layers = document["layers"]
        if not isinstance(layers, Sequence) or isinstance(layers, str):
            raise InvalidModel(f"layers={layers!r} is not a list")
        document["layers"] = tuple(Layer(**_object(each, Layer, f"layer {n}")) for n, each in enumerate(layers))
        return Model(**document)
    except (ValueError, RecursionError) as error:
        raise InvalidModel(f"{path} is not a model: {error}") from None


def _object(values: Any, kind: type[Layer | Model], name: str) -> dict[str, Any]:
    """Return the values of an object of a JSON file; raise InvalidModel unless they are those of the class."""
    valid = [each.name for each in fields(kind)]
    needed = ["name", "layers"] if kind is Model else ["name", "parameters", "activation"]
    if not isinstance(values, dict):
        raise InvalidModel(f"{name} is not an object")
    if missing := [each for each in needed if each not in values]:
        raise InvalidModel(f"{name} has no {missing[0]!r}")
    if unknown := [each for each in values if each not in valid]:
        raise InvalidModel(f"{name}: {unknown[0]!r} is not one of: {', '.join(valid)}")
    return dict(values)


def divided(layers: Sequence[Layer], parts: int) -> list[list[Layer]]:
    """Divide layers into consecutive parts so that the slowest part takes as little time as possible.

    Raises
    ------
    ValueError
        If there are more parts than layers.
    """
    if parts > len(layers):
        raise ValueError(f"{len(layers)} layers cannot be divided into {parts} stages: each needs a layer")
    before = [0.0]
    for layer in layers:
        before.append(before[-1] + layer.forward + layer.backward)
    # for each number of parts and of layers in them: the slowest part, and the first layer of the last one
    best = [[(seconds, 0) for seconds in before]]
    for count in range(2, parts + 1):
        row = [(math.inf, 0)] * count
        for end in range(count, len(layers) + 1):
            row.append(min((max(best[-1][at][0], before[end] - before[at]), at) for at in range(count - 1, end)))
        best.append(row)
    ends = [len(layers)]
    for row in reversed(best):
        ends.append(row[ends[-1]][1])
    return [list(layers[begin:end]) for end, begin in pairwise(ends)][::-1]
