"""The part of a model that one rank has, on a mesh of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from pycoll.parallel import Mesh, RingAttention, UlyssesAttention, VocabularyParallelEmbedding

from .layers import Embedding, Head, Layers, Norm, transformer_layer
from .weights import Arrays, Size

ATTENTION = {"ulysses": UlyssesAttention, "ring": RingAttention}
AXES = ("dp", "pp", "ep", "sp", "tp")


def along(mesh: Mesh, *axes: str) -> MPI.Intracomm:
    """Return the communicator of the ranks along these axes, without those that the mesh does not have."""
    found = tuple(axis for axis in axes if axis in mesh.axes)
    return mesh[found] if found else MPI.COMM_SELF


def chunks_of(weights: Arrays, size: Size, mesh: Mesh, chunks: int, attention: str, sequence: bool) -> list[Layers]:
    """Return the layers of this rank: `chunks` pieces of the model, dealt to the ranks along ``pp`` in turn."""
    stages = along(mesh, "pp")
    pieces = np.array_split(np.arange(size.layers), stages.size * chunks)
    mine = range(stages.rank, len(pieces), stages.size)
    tp = along(mesh, "tp")
    tokens = VocabularyParallelEmbedding(weights["embedding.table"], comm=tp, sequence=sequence)
    return [
        _chunk(weights, size, mesh, pieces[at], tokens, at == 0, at == len(pieces) - 1, attention, sequence)
        for at in mine
    ]


def _chunk(
    weights: Arrays,
    size: Size,
    mesh: Mesh,
    numbers: Sequence[int],
    tokens: VocabularyParallelEmbedding,
    first: bool,
    last: bool,
    attention: str,
    sequence: bool,
) -> Layers:
    tp, sp = along(mesh, "tp"), along(mesh, "sp")
    core = ATTENTION[attention](sp)
    places = core.positions(size.length)
    parts: dict[str, Any] = {}
    if first:
        parts["_embed"] = Embedding(tokens, weights["positions.table"], places, tp, sequence)
    for number in numbers:
        name = f"layer{number}"
        parts[name] = transformer_layer(weights, name, size, core, len(places), None, tp, sequence)
    if last:
        parts["norm"] = Norm(weights, "norm")
        parts["_head"] = Head(tokens, tp, sequence)
    return Layers(**parts)
