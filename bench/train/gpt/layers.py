"""Parts of a transformer.

Each part has ``forward(x) -> (y, saved)`` and ``backward(dy, saved) -> dx``, which adds to `gradients`.  Activations
have the shape (rows, width); the rows are the positions of the first sequence, then those of the second, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

from pycoll.parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabularyParallelEmbedding,
    enter_region,
    leave_region,
)

from .meter import Meter, Metered
from .weights import Array, Arrays, Size

SLOPE = math.sqrt(2 / math.pi)  # a float of Python, which does not change the dtype of arrays


class Layers:
    """Parts one after the other, with names."""

    def __init__(self, **parts: Any) -> None:
        self.parts = parts

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Return the output, and what `backward` needs."""
        kept = []
        for part in self.parts.values():
            x, saved = part.forward(x)
            kept.append(saved)
        return x, kept

    def backward(self, dy: Array, saved: Any) -> Any:
        """Add to the gradients; return that of the input."""
        for part, kept in zip(reversed(self.parts.values()), reversed(saved), strict=True):
            dy = part.backward(dy, kept)
        return dy

    def backward_input(self, dy: Array, saved: Any) -> tuple[Any, Callable[[], None]]:
        """Return the gradient of the input, and a function that adds to those of large weights."""
        later: list[Callable[[], None]] = []
        for part, kept in zip(reversed(self.parts.values()), reversed(saved), strict=True):
            if hasattr(part, "backward_input"):
                dy, add = part.backward_input(dy, kept)
                later.append(add)
            else:
                dy = part.backward(dy, kept)

        def weights() -> None:
            for add in later:
                add()

        return dy, weights


class Residual(Layers):
    """Layers whose output is added to their input."""

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Return the output, and what `backward` needs."""
        y, saved = super().forward(x)
        return x + y, saved

    def backward(self, dy: Array, saved: Any) -> Any:
        """Add to the gradients; return that of the input."""
        return dy + super().backward(dy, saved)

    def backward_input(self, dy: Array, saved: Any) -> tuple[Any, Callable[[], None]]:
        """Return the gradient of the input, and a function that adds to those of large weights."""
        dx, weights = super().backward_input(dy, saved)
        return dy + dx, weights


def named(part: Any, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield the name of each parameter, the layer that has it, and its key in the layer's `parameters`.

    The name consists of the names of the parts that it is in, without those that begin with an underscore.
    """
    for name, child in getattr(part, "parts", {}).items():
        yield from named(child, prefix if name.startswith("_") else f"{prefix}{name}.")
    for key in getattr(part, "parameters", {}):
        yield prefix + key, part, key


class Norm:
    """Layer norm."""

    def __init__(self, weights: Arrays, name: str) -> None:
        self.parameters = {key: weights[f"{name}.{key}"].copy() for key in ("gain", "bias")}
        self.gradients = {key: np.zeros_like(array) for key, array in self.parameters.items()}

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Return the output, and what `backward` needs."""
        centred = x - x.mean(1, keepdims=True)
        scale = 1 / np.sqrt(np.square(centred).mean(1, keepdims=True) + 1e-5)
        normal = centred * scale
        return normal * self.parameters["gain"] + self.parameters["bias"], (normal, scale)

    def backward(self, dy: Array, saved: Any) -> Array:
        """Add to the gradients; return that of the input."""
        normal, scale = saved
        self.gradients["gain"] += (dy * normal).sum(0)
        self.gradients["bias"] += dy.sum(0)
        dn = dy * self.parameters["gain"]
        return scale * (dn - dn.mean(1, keepdims=True) - normal * (dn * normal).mean(1, keepdims=True))


class Gelu:
    """The activation of GPT-2: GELU, approximated with tanh."""

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Return the output, and what `backward` needs."""
        tanh = np.tanh(SLOPE * (x + 0.044715 * x * x * x))
        return 0.5 * x * (1 + tanh), (x, tanh)

    def backward(self, dy: Array, saved: Any) -> Array:
        """Add to the gradients; return that of the input."""
        x, tanh = saved
        slope = SLOPE * (1 + 3 * 0.044715 * x * x)
        return dy * (0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * slope)


def column(weights: Arrays, name: str, comm: MPI.Intracomm, sequence: bool) -> ColumnParallelLinear:
    """Return the layer with the weights of this name, divided by columns."""
    return ColumnParallelLinear(weights[f"{name}.weight"], weights[f"{name}.bias"], comm=comm, sequence=sequence)


def row(weights: Arrays, name: str, comm: MPI.Intracomm, sequence: bool) -> RowParallelLinear:
    """Return the layer with the weights of this name, divided by rows."""
    return RowParallelLinear(weights[f"{name}.weight"], weights[f"{name}.bias"], comm=comm, sequence=sequence)


class Attention:
    """What lies between the linear layers of an attention: heads and their attention.

    `core` computes the attention of arrays of shape (sequences, positions, heads, width of a head).
    """

    def __init__(self, core: Any, length: int, head_width: int) -> None:
        self.core, self.length, self.head_width = core, length, head_width

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Take the queries, keys and values of each head, side by side."""
        heads = x.reshape(-1, self.length, x.shape[1] // (3 * self.head_width), 3, self.head_width)
        y, saved = self.core.forward(*(np.ascontiguousarray(heads[:, :, :, each]) for each in range(3)))
        return y.reshape(len(x), -1), saved

    def backward(self, dy: Array, saved: Any) -> Array:
        """Add to the gradients; return that of the input."""
        heads = dy.reshape(-1, self.length, dy.shape[1] // self.head_width, self.head_width)
        return np.stack(self.core.backward(heads, saved), 3).reshape(len(dy), -1)


class Embedding:
    """Sums of the rows of tokens and positions; `places` are the positions that this rank has of each sequence."""

    def __init__(
        self, tokens: VocabularyParallelEmbedding, positions: Array, places: Array, comm: MPI.Intracomm, sequence: bool
    ) -> None:
        self.parts = {"embedding": tokens}
        self.parameters = {"positions.table": positions.copy()}
        self.gradients = {"positions.table": np.zeros_like(positions)}
        self.tokens, self.places, self.comm, self.sequence = tokens, places, comm, sequence

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Take tokens of shape (sequences, positions)."""
        y, saved = self.tokens.forward(x.reshape(-1))
        places = np.tile(self.places, len(x))
        if self.sequence:
            places = np.split(places, self.comm.size)[self.comm.rank]
        return y + self.parameters["positions.table"][places], (saved, places)

    def backward(self, dy: Array, saved: Any) -> None:
        """Add to the gradients; return that of the input."""
        saved, places = saved
        self.tokens.backward(dy, saved)
        np.add.at(self.gradients["positions.table"], places, dy)


class Head:
    """The logits of each token of this rank, from the table of the embedding."""

    def __init__(self, tokens: VocabularyParallelEmbedding, comm: MPI.Intracomm, sequence: bool) -> None:
        self.parts = {"embedding": tokens}
        self.tokens, self.comm, self.sequence = tokens, comm, sequence

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Return the output, and what `backward` needs."""
        x = enter_region(x, self.comm, self.sequence)
        return x @ self.tokens.parameters["table"].T, x

    def backward(self, dy: Array, saved: Any) -> Array:
        """Add to the gradients; return that of the input."""
        self.tokens.gradients["table"] += dy.T @ saved
        return leave_region(dy @ self.tokens.parameters["table"], self.comm, self.sequence)


def transformer_layer(
    weights: Arrays,
    name: str,
    size: Size,
    core: Any,
    length: int,
    tp: MPI.Intracomm,
    sequence: bool,
    experts: Any,
    meter: Meter,
) -> Layers:
    """Return attention and a network, each after a norm; without `experts`, the network is the same for all tokens."""
    attention = Residual(
        norm1=Norm(weights, f"{name}.norm1"),
        attention=Layers(
            qkv=Metered(column(weights, f"{name}.attention.qkv", tp, sequence), meter, "tp"),
            heads=Metered(Attention(core, length, size.width // size.heads), meter, "sp"),
            output=Metered(row(weights, f"{name}.attention.output", tp, sequence), meter, "tp"),
        ),
    )
    norm = Norm(weights, f"{name}.norm2")
    if experts:
        return Layers(
            _first=attention, _second=Residual(norm2=norm, experts=Metered(experts(f"{name}.experts"), meter, "ep"))
        )
    network = Layers(
        up=Metered(column(weights, f"{name}.mlp.up", tp, sequence), meter, "tp"),
        gelu=Gelu(),
        down=Metered(row(weights, f"{name}.mlp.down", tp, sequence), meter, "tp"),
    )
    return Layers(_first=attention, _second=Residual(norm2=norm, mlp=network))
