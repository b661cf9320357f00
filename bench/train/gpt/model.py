"""The part of a model that one rank has, on a mesh of ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from pycoll.parallel import ExpertParallel, Mesh, RingAttention, UlyssesAttention, VocabularyParallelEmbedding

from .layers import Embedding, Head, Layers, Norm, transformer_layer
from .meter import Meter, Metered
from .weights import Arrays, Size

# What each axis of a mesh divides: sequences of a batch (dp; fsdp also parameters; ep also experts), layers (pp),
# positions (sp), and weights (tp).
AXES = ("dp", "fsdp", "ep", "pp", "sp", "tp")
SEQUENCES = ("dp", "fsdp", "ep")  # the axes along which ranks have different sequences
ATTENTION = {"ulysses": UlyssesAttention, "ring": RingAttention}


class Plan(NamedTuple):
    """How a model is trained."""

    attention: str = "ulysses"  # how attention works if positions are divided
    sequence: bool = False  # divide activations between the layers of tensor parallelism too
    pipeline: str = "1f1b"
    chunks: int = 1  # of the model on each rank, for the interleaved pipeline
    micro_batches: int = 1
    top_k: int = 2  # experts for each token
    capacity: float = 1.25  # of experts
    groups: int = 1  # of rows on each rank, for the capacity of experts
    rate: float = 1e-3
    warmup: int = 20
    steps: int = 1000


def along(mesh: Mesh, *axes: str) -> MPI.Intracomm:
    """Return the communicator of the ranks along these axes, without those that the mesh does not have."""
    found = tuple(axis for axis in axes if axis in mesh.axes)
    return mesh[found] if found else MPI.COMM_SELF


def check(size: Size, mesh: Mesh, plan: Plan) -> None:
    """Raise ValueError if a model cannot be divided over a mesh."""
    tp = along(mesh, "tp").size
    chunks = along(mesh, "pp").size * plan.chunks
    if unknown := [axis for axis in mesh.axes if axis not in AXES]:
        raise ValueError(f"axis {unknown[0]!r} is unknown; choose from: {', '.join(AXES)}")
    if size.width % size.heads:
        raise ValueError(f"width={size.width} is not a multiple of {size.heads} heads")
    if size.heads % tp:
        raise ValueError(
            f"{size.heads} heads cannot be divided over tp={tp}; change the number of heads to a multiple of {tp}"
        )
    if size.layers < chunks:
        raise ValueError(f"{size.layers} layers are too few for {chunks} pieces of the pipeline; use at least {chunks}")
    if "fsdp" in mesh.axes and set(mesh.axes) & {"pp", "tp", "ep"}:
        raise ValueError(f"axis fsdp can be combined with dp and sp, not with {', '.join(mesh.axes)}")
    ep, sp = (along(mesh, axis) for axis in ("ep", "sp"))
    if "ep" in mesh.axes and not size.experts:
        raise ValueError("axis ep needs experts")
    if size.experts % ep.size:
        raise ValueError(
            f"{size.experts} experts cannot be divided over {ep.size} ranks; "
            f"change the number of experts to a multiple of {ep.size}, or use fewer ranks"
        )
    ATTENTION[plan.attention](sp).positions(size.length)  # raises ValueError
    if plan.attention == "ulysses" and size.heads // tp % sp.size:
        raise ValueError(
            f"{size.heads // tp} heads of a rank cannot be divided over sp={sp.size}; change the number of heads to a "
            f"multiple of {tp * sp.size}, or use --sequence ring"
        )


def check_batch(sequences: int, ranks: int, micro_batches: int) -> None:
    """Raise ValueError if a batch cannot be divided."""
    parts = ranks * micro_batches
    if sequences % parts:
        raise ValueError(
            f"{sequences} sequences cannot be divided over {ranks} ranks with {micro_batches} micro-batches each; "
            f"change the batch to a multiple of {parts}"
        )


def chunks_of(weights: Arrays, size: Size, mesh: Mesh, plan: Plan, meter: Meter) -> list[Layers]:
    """Return the layers of this rank: pieces of the model, which are dealt to the ranks along ``pp`` in turn."""
    stages, tp, sp, ep = (along(mesh, axis) for axis in ("pp", "tp", "sp", "ep"))
    core = ATTENTION[plan.attention](sp)
    places = core.positions(size.length)
    tokens = VocabularyParallelEmbedding(weights["embedding.table"], comm=tp, sequence=plan.sequence)

    def experts(name: str) -> ExpertParallel:
        whole = (weights[f"{name}.{key}"] for key in ("gate", "up", "down"))
        options: dict[str, Any] = {"top_k": plan.top_k, "capacity": plan.capacity, "groups": plan.groups}
        parts = plan.micro_batches * (tp.size if plan.sequence else 1)  # of a batch, whose gradients are added
        return ExpertParallel(*whole, balance=0.01 / parts, comm=ep, **options)

    def layer(number: int) -> Layers:
        name = f"layer{number}"
        return transformer_layer(
            weights, name, size, core, len(places), tp, plan.sequence, experts if size.experts else None, meter
        )

    pieces = np.array_split(np.arange(size.layers), stages.size * plan.chunks)
    chunks = []
    for at in range(stages.rank, len(pieces), stages.size):
        parts: dict[str, Any] = {f"layer{number}": layer(number) for number in pieces[at]}
        if at == 0:
            embed = Embedding(tokens, weights["positions.table"], places, tp, plan.sequence)
            parts = {"_embed": Metered(embed, meter, "tp")} | parts
        if at == len(pieces) - 1:
            parts |= {"norm": Norm(weights, "norm"), "_head": Metered(Head(tokens, tp, plan.sequence), meter, "tp")}
        chunks.append(Layers(**parts))
    return chunks
