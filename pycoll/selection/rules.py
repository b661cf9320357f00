"""Rules for which algorithm runs where none is asked for and nothing was measured.

They follow the costs in the algorithms' docstrings (few rounds for short messages, few bytes for long
ones) and measurements on two cores with both MPI wheels (``python -m bench``).
"""

from __future__ import annotations

from collections.abc import Callable

KIB = 1024
UNLIMITED = 1 << 62


def choose(primitive: str, nbytes: int, size: int, commutative: bool = True, hosts: int = 1) -> str:
    """The name of an algorithm for `nbytes` bytes (of the vector, or of one rank's block) on `size` ranks.

    Where blocks differ, `nbytes` is their mean for allgatherv and reduce_scatter, and means nothing elsewhere.

    Depends on what all ranks know alike.  A non-commutative operation gets an algorithm that keeps rank
    order.
    """
    if primitive in _ORDERED and not commutative:
        return _ORDERED[primitive](nbytes)
    if hosts > 1 and nbytes > _BETWEEN_HOSTS.get(primitive, nbytes):
        return "two_level"
    return _RULES[primitive](nbytes, size)


def native_up_to(primitive: str, library: str = "") -> int:
    """Up to how many bytes, counted as in `choose`, a call of `pycoll.Comm` that names no algorithm is left to MPI.

    There latency decides, and pycoll adds that of Python.  Where the ranks do not know each other's counts alike, all
    calls are left to MPI.  `library` is the name of the MPI library.
    """
    if primitive == "allgatherv" and library.startswith("MPICH"):
        return 16 * KIB
    return _NATIVE.get(primitive, UNLIMITED)


def _bcast(nbytes: int, size: int) -> str:
    return "tree" if nbytes <= 512 * KIB or size <= 4 else "ring"


def _to_or_from_root(nbytes: int, size: int) -> str:
    """Scatter and gather: a tree saves rounds, but forwards bytes that could have gone straight."""
    return "tree" if nbytes <= 2 * KIB and size > 4 else "naive"


def _reduce(nbytes: int, size: int) -> str:
    return "tree" if nbytes <= 64 * KIB or size == 2 else "rabenseifner"


def _allgather(nbytes: int, size: int) -> str:
    return "tree" if nbytes <= 8 * KIB else "neighbor"


def _allreduce(nbytes: int, size: int) -> str:
    if nbytes <= 64 * KIB:
        return "recursive_doubling"
    power_of_two = size & (size - 1) == 0
    return "rabenseifner" if nbytes <= 4096 * KIB and power_of_two and size > 2 else "ring"


def _reduce_scatter(nbytes: int, size: int) -> str:
    return "recursive_halving" if nbytes <= 64 * KIB else "ring"


def _scan(nbytes: int, size: int) -> str:
    """Scan and exscan: between two ranks there is nothing to pipeline."""
    return "tree" if nbytes <= 64 * KIB or size == 2 else "ring"


def _alltoall(nbytes: int, size: int) -> str:
    if nbytes <= 256 and size >= 16:
        return "tree"
    return "naive" if size < 16 else "pairwise"


# above how many bytes what crosses a host's link decides
_BETWEEN_HOSTS = {"bcast": 32 * KIB, "allgather": 16 * KIB, "allreduce": 64 * KIB, "reduce_scatter": 16 * KIB}
_RULES: dict[str, Callable[[int, int], str]] = {
    "bcast": _bcast,
    "scatter": _to_or_from_root,
    "gather": _to_or_from_root,
    "reduce": _reduce,
    "allgather": _allgather,
    "allreduce": _allreduce,
    "reduce_scatter": _reduce_scatter,
    "alltoall": _alltoall,
    "barrier": lambda nbytes, size: "dissemination",
    "scan": _scan,
    "exscan": _scan,
    # ranks do not know each other's counts alike
    "scatterv": lambda nbytes, size: "naive",
    "gatherv": lambda nbytes, size: "naive",
    "allgatherv": _allgather,
    "alltoallv": lambda nbytes, size: "naive" if size < 16 else "pairwise",
    "alltoallw": lambda nbytes, size: "naive" if size < 16 else "pairwise",
}
_NATIVE = {
    **dict.fromkeys(("reduce", "allreduce", "reduce_scatter", "scan", "exscan"), 8 * KIB),
    **dict.fromkeys(("scatter", "gather", "allgather", "alltoall"), 64 * KIB),
    "bcast": 1024 * KIB,
}
_ORDERED: dict[str, Callable[[int], str]] = {
    "reduce": lambda nbytes: "tree",
    "allreduce": lambda nbytes: "recursive_doubling" if nbytes <= 64 * KIB else "double_tree",
    "reduce_scatter": lambda nbytes: "tree",
}
