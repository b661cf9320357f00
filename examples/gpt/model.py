"""The GPT, and the part of it that one rank has.

Each part of the model has two methods, like the layers of `pycoll.parallel`.  ``forward(x)`` returns the output and
what the backward pass needs.  ``backward(dy, saved)`` adds to `gradients` and returns the gradient of x.  Activations
have the shape (rows, WIDTH): the positions of the first sequence, then those of the second, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import pycoll
from pycoll.parallel import (
    ColumnParallelLinear,
    ExpertParallel,
    Mesh,
    Pipeline,
    RingAttention,
    RowParallelLinear,
    UlyssesAttention,
    VocabularyParallelEmbedding,
    average_gradients,
    vocabulary_parallel_cross_entropy,
)

Array = np.ndarray

TOKENS = 128  # ASCII characters
LENGTH = 32  # positions of a sequence
WIDTH = 32
HEADS = 4
LAYERS = 4
SCALE = 0.02  # standard deviation of initial weights, as in GPT-2
LAST = SCALE / np.sqrt(2 * LAYERS)  # the same where a branch ends
ATTENTION = {"ring": RingAttention, "ulysses": UlyssesAttention}


# ---- composition


class Chain:
    """Parts one after the other."""

    def __init__(self, **parts: Any) -> None:
        self.parts = parts

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Return the output of the last part, and what each part keeps."""
        kept = []
        for part in self.parts.values():
            x, saved = part.forward(x)
            kept.append(saved)
        return x, kept

    def backward(self, dy: Array, saved: Any) -> Any:
        """Go back through the parts; return the gradient of the first input."""
        for part, kept in zip(reversed(self.parts.values()), reversed(saved), strict=True):
            dy = part.backward(dy, kept)
        return dy


class Residual(Chain):
    """``x + F(x)``, where F is a chain."""

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Return the sum."""
        y, saved = super().forward(x)
        return x + y, saved

    def backward(self, dy: Array, saved: Any) -> Any:
        """Return the gradient of x, which has taken both ways."""
        return dy + super().backward(dy, saved)


def leaves(part: Any, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield the name of each parameter, the layer that has it, and its key in the layer's `parameters`."""
    for name, child in getattr(part, "parts", {}).items():
        yield from leaves(child, f"{prefix}{name}.")
    for key in getattr(part, "parameters", {}):
        yield prefix + key, part, key


# ---- layers that are the same on one rank and on many


class LayerNorm:
    """Normalize each row; then scale and shift it."""

    def __init__(self) -> None:
        self.parameters = {"gain": np.ones(WIDTH), "bias": np.zeros(WIDTH)}
        self.gradients = {"gain": np.zeros(WIDTH), "bias": np.zeros(WIDTH)}

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Return rows with a mean of `bias` and a standard deviation of `gain`."""
        centred = x - x.mean(1, keepdims=True)
        scale = 1 / np.sqrt(np.square(centred).mean(1, keepdims=True) + 1e-5)
        normal = centred * scale
        return normal * self.parameters["gain"] + self.parameters["bias"], (normal, scale)

    def backward(self, dy: Array, saved: Any) -> Array:
        """Remove from the gradient what changes the mean or the scale of a row."""
        normal, scale = saved
        self.gradients["gain"] += (dy * normal).sum(0)
        self.gradients["bias"] += dy.sum(0)
        dn = dy * self.parameters["gain"]
        return scale * (dn - dn.mean(1, keepdims=True) - normal * (dn * normal).mean(1, keepdims=True))


class Gelu:
    """The activation of GPT-2: GELU, approximated with tanh."""

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Return ``GeLU(x)``."""
        tanh = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x * x * x))
        return 0.5 * x * (1 + tanh), (x, tanh)

    def backward(self, dy: Array, saved: Any) -> Array:
        """Multiply with the derivative."""
        x, tanh = saved
        slope = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)
        return dy * (0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * slope)


# ---- the transformer


class Heads:
    """``softmax(Q K^T / sqrt(d)) V`` for the heads of this rank.

    Positions are divided over sp.  Ring attention sends K and V around a ring, while Q stays.  Ulysses exchanges
    positions for heads with an all-to-all, and so computes with whole sequences.
    """

    def __init__(self, attention: Any, positions: int) -> None:
        self.attention, self.positions = attention, positions

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Take q, k and v of each head, side by side."""
        d = WIDTH // HEADS
        heads = x.reshape(-1, self.positions, x.shape[1] // (3 * d), 3, d)
        y, saved = self.attention.forward(*(np.ascontiguousarray(heads[:, :, :, each]) for each in range(3)))
        return y.reshape(len(x), -1), saved

    def backward(self, dy: Array, saved: Any) -> Array:
        """Return the gradients of q, k and v of each head, side by side."""
        heads = dy.reshape(-1, self.positions, dy.shape[1] * HEADS // WIDTH, WIDTH // HEADS)
        return np.stack(self.attention.backward(heads, saved), 3).reshape(len(dy), -1)


class Embedding:
    """The vectors of a token and of its position, added; the table of tokens is divided over tp."""

    def __init__(self, mesh: Mesh, positions: Array) -> None:
        random = np.random.default_rng(LAYERS)
        tokens = VocabularyParallelEmbedding(random.normal(0, SCALE, (TOKENS, WIDTH)), comm=mesh["tp"])
        self.tokens, self.positions = tokens, positions
        self.parts = {"tokens": tokens}
        self.parameters = {"positions": random.normal(0, SCALE, (LENGTH, WIDTH))}
        self.gradients = {"positions": np.zeros((LENGTH, WIDTH))}

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Take tokens of shape (sequences, positions of this rank)."""
        y, saved = self.tokens.forward(x.reshape(-1))
        positions = np.tile(self.positions, len(x))
        return y + self.parameters["positions"][positions], (saved, positions)

    def backward(self, dy: Array, saved: Any) -> None:
        """Add to the gradients; tokens have none."""
        saved, positions = saved
        self.tokens.backward(dy, saved)
        np.add.at(self.gradients["positions"], positions, dy)


class Settings(NamedTuple):
    """How the model is divided and trained, apart from the mesh."""

    attention: str = "ring"
    experts: int = 0  # in each layer; 0 is an MLP
    micro_batches: int = 1
    groups: int = 1  # of rows on each rank, for the capacity of experts


def block(number: int, mesh: Mesh, heads: Heads, settings: Settings) -> Chain:
    """Return a layer of the transformer: ``x + Attention(LayerNorm(x))``, then ``x + MLP(LayerNorm(x))``.

    The MLP is that of Megatron-LM: ``Y = GeLU(X A)`` and ``Z = Y B``.  A rank along tp has some columns of A and the
    same rows of B.  A column-parallel layer begins with f, the identity in the forward pass and an all-reduce in the
    backward pass.  A row-parallel layer ends with g, the reverse.  Attention is divided likewise: the columns of Q, K
    and V head by head, and the rows of the output.
    """
    random, tp = np.random.default_rng(number), mesh["tp"]  # the same whole weights, however they are divided

    def columns(width: int) -> ColumnParallelLinear:
        return ColumnParallelLinear(random.normal(0, SCALE, (WIDTH, width)), np.zeros(width), comm=tp)

    def rows(width: int) -> RowParallelLinear:
        return RowParallelLinear(random.normal(0, LAST, (width, WIDTH)), np.zeros(WIDTH), comm=tp)

    attention = Residual(norm=LayerNorm(), qkv=columns(3 * WIDTH), heads=heads, output=rows(WIDTH))
    if settings.experts:
        mlp = Residual(norm=LayerNorm(), switch=switch(random, mesh, settings))
    else:
        mlp = Residual(norm=LayerNorm(), A=columns(4 * WIDTH), gelu=Gelu(), B=rows(4 * WIDTH))
    return Chain(attention=attention, mlp=mlp)


def switch(random: np.random.Generator, mesh: Mesh, settings: Settings) -> ExpertParallel:
    """Return the layer of Switch Transformers, which takes the place of the MLP: ``y = p_i(x) E_i(x)``.

    The router computes p, the probabilities of the experts; i is the expert with the highest.  Rows above the capacity
    of an expert skip the layer.  The auxiliary loss, with the factor alpha, keeps the experts equally busy.
    """
    router = random.normal(0, SCALE, (WIDTH, settings.experts))
    up = random.normal(0, SCALE, (settings.experts, WIDTH, 4 * WIDTH))
    down = random.normal(0, LAST, (settings.experts, 4 * WIDTH, WIDTH))
    alpha = 0.01 / settings.micro_batches  # the gradients of micro-batches are added
    return ExpertParallel(
        router, up, down, top_k=1, capacity=1.25, balance=alpha, groups=settings.groups, comm=mesh["ep"]
    )


# ---- the part of one rank


class Gpt:
    """The stage of the pipeline that this rank has, of the model that the mesh divides."""

    def __init__(self, mesh: Mesh, settings: Settings) -> None:
        self.mesh = mesh
        attention = ATTENTION[settings.attention](mesh["sp"])
        self.positions = attention.positions(LENGTH)
        heads = Heads(attention, len(self.positions))
        stages = mesh["pp"]
        parts: dict[str, Any] = {}
        if stages.rank == 0:
            parts["embedding"] = Embedding(mesh, self.positions)
        for number in np.split(np.arange(LAYERS), stages.size)[stages.rank]:
            parts[f"block{number}"] = block(number, mesh, heads, settings)
        if stages.rank == stages.size - 1:
            logits = np.random.default_rng(LAYERS + 1).normal(0, SCALE, (WIDTH, TOKENS))
            parts |= {"norm": LayerNorm(), "logits": ColumnParallelLinear(logits, comm=mesh["tp"])}
        stage = Chain(**parts)
        self.leaves = list(leaves(stage))
        self.parameters = {name: layer.parameters[key] for name, layer, key in self.leaves}
        self.pipeline = Pipeline([stage], self.loss, comm=stages, micro_batches=settings.micro_batches)

    def loss(self, logits: Array, targets: Array) -> tuple[float, Array]:
        """Return the mean cross-entropy of a micro-batch, and its gradient; each rank along tp has some tokens."""
        return vocabulary_parallel_cross_entropy(logits, targets.reshape(-1), self.mesh["tp"])

    def learn(self, inputs: Array, targets: Array) -> tuple[float, dict[str, Array]]:
        """Return the mean loss of a batch of shape (sequences, LENGTH), and its gradients.

        The ranks along dp and ep have different sequences, those along sp different positions.
        """
        for _, layer, key in self.leaves:
            layer.gradients[key][...] = 0
        sequences, rows = self.mesh["dp", "ep"], self.mesh["dp", "ep", "sp"]
        mine = (np.split(x, sequences.size)[sequences.rank][:, self.positions] for x in (inputs, targets))
        loss = self.pipeline.step(*mine)
        return float(pycoll.allreduce(np.array([loss]), op="avg", comm=rows)[0]), self.averaged()

    def averaged(self) -> dict[str, Array]:
        """Average each gradient over the ranks that have the same parameter and other rows.

        Ranks along pp have other parameters.  Those along tp have other blocks of a weight, or the same gradient.
        """
        everyone, experts = {}, {}
        for name, layer, key in self.leaves:
            of_expert = isinstance(layer, ExpertParallel) and key in layer.divided
            (experts if of_expert else everyone)[name] = layer.gradients[key]
        average_gradients(everyone, self.mesh["dp", "ep", "sp"])
        for gradient in experts.values():
            gradient /= self.mesh["ep"].size  # an expert has seen the rows of all ranks along ep
        average_gradients(experts, self.mesh["dp", "sp"])
        return everyone | experts

    def free(self) -> None:
        """Free the communicator of the pipeline."""
        self.pipeline.free()
