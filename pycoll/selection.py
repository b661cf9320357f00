"""Which algorithm runs when none is asked for."""

from __future__ import annotations

from .schedule import find

KIB = 1024

# For each primitive: up to how many bytes (of the vector, or of one rank's block) which algorithm is taken.
_RULES: dict[str, list[tuple[float, str]]] = {
    "bcast": [(32 * KIB, "tree"), (float("inf"), "scatter_allgather")],
    "scatter": [(float("inf"), "tree")],
    "gather": [(float("inf"), "tree")],
    "reduce": [(32 * KIB, "tree"), (float("inf"), "rabenseifner")],
    "allgather": [(8 * KIB, "tree"), (float("inf"), "ring")],
    "allreduce": [(16 * KIB, "recursive_doubling"), (float("inf"), "ring")],
    "reduce_scatter": [(8 * KIB, "recursive_halving"), (float("inf"), "ring")],
    "alltoall": [(256, "tree"), (float("inf"), "pairwise")],
    "barrier": [(float("inf"), "dissemination")],
}
_ORDERED: dict[str, list[tuple[float, str]]] = {
    "reduce": [(float("inf"), "tree")],
    "allreduce": [(64 * KIB, "recursive_doubling"), (float("inf"), "double_tree")],
    "reduce_scatter": [(float("inf"), "tree")],
}


def choose(primitive: str, nbytes: int, size: int, commutative: bool = True) -> str:
    """The name of the algorithm for `nbytes` bytes on `size` ranks.

    A non-commutative operation gets an algorithm that keeps rank order.
    """
    rules = _RULES[primitive]
    if not commutative:
        rules = _ORDERED.get(primitive, rules)
    name = next(name for limit, name in rules if nbytes <= limit)
    return find(primitive, name).name
