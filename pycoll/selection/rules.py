"""Rules that select an algorithm if none is requested and there are no measurements.

They follow the costs in the docstrings of the algorithms: few rounds for short messages, few bytes for long ones.  They
also follow measurements with both MPI wheels on two cores (``python -m pycoll.bench``), and on two to four hosts with
one or two ranks each and links of 1 Gbit/s (``python -m pycoll.bench.calls``).  On slower links, the bytes decide
earlier, and `pycoll.tune` finds better limits.
"""

from __future__ import annotations

from collections.abc import Callable

KIB = 1024
MIB = 1024 * KIB
UNLIMITED = 1 << 62
FEW = 16  # the most ranks for rules with an algorithm whose time grows with their number; measured on up to 8
PACKED = frozenset({"alltoallw", "neighbor_alltoallw"})
"""Collectives that `pycoll.Comm` leaves to MPI even inside a host: blocks usually have gaps, which it packs faster."""
REGISTERED_FROM = 8 * KIB
"""The smallest size, counted as in `choose`, of calls that use registered buffers.

For shorter ones, exchanging the positions of the buffers takes longer than shared memory or messages.
"""


def choose(primitive: str, nbytes: int, size: int, commutative: bool = True, hosts: int = 1) -> str:
    """The name of an algorithm for `nbytes` bytes (of the vector, or of the block of one rank) on `size` ranks.

    If blocks differ, `nbytes` is their mean for allgatherv and reduce_scatter; the other v-variants ignore it.

    All arguments are the same on all ranks.  A non-commutative operation gets an algorithm that keeps rank order.
    """
    if primitive in _ORDERED and not commutative:
        return _ORDERED[primitive](nbytes)
    rules = _BETWEEN_HOSTS if _has_rules_between_hosts(primitive, size, hosts) else _RULES
    return rules.get(primitive, _RULES[primitive])(nbytes, size)


def slots_up_to(primitive: str) -> int:
    """The largest size, counted as in `choose`, of calls inside a host that run through shared memory.

    Reductions and broadcasts of all sizes do.  Other blocks that are only moved are copied twice in slots; a message of
    a long block is copied once, but ranks that need the same block wait for each other.  The limits were measured with
    both MPI wheels on 2 and 4 ranks.
    """
    return _SLOTS.get(primitive, UNLIMITED)


def native_is_faster(primitive: str, nbytes: int, library: str = "", size: int = 2, hosts: int = 1) -> bool:
    """Whether blocking `pycoll.Comm` calls of this size, counted as in `choose`, are left to MPI.

    This holds if ranks share no memory.  MPI is faster where it has a better algorithm, or the same one: pycoll adds
    Python overhead.  If counts are not known on all ranks, calls of all sizes are left to MPI.  `library` is the name
    of the MPI library.
    """
    tables = [_NATIVE]
    if _has_rules_between_hosts(primitive, size, hosts):
        tables.insert(0, _NATIVE_BETWEEN_HOSTS)
        if size == hosts:
            tables.insert(0, _NATIVE_ONE_RANK_A_HOST)
    for table in tables:
        for name, limits in table.items():
            if library.startswith(name) and primitive in limits:
                passed = [limit for limit in limits[primitive] if limit < nbytes]
                return len(passed) % 2 == 0
    return True


def _has_rules_between_hosts(primitive: str, size: int, hosts: int) -> bool:
    """Whether the rules between hosts hold: there are several, and few ranks if the time grows with their number."""
    return hosts > 1 and (size <= FEW or primitive in _FOR_MANY_RANKS)


def _bcast(nbytes: int, size: int) -> str:
    return "tree" if nbytes <= 512 * KIB or size <= 4 else "ring"


def _to_or_from_root(nbytes: int, size: int) -> str:
    """Scatter and gather: a tree needs fewer rounds, but forwards bytes that could be sent directly."""
    return "tree" if nbytes <= 2 * KIB and size > 4 else "naive"


def _reduce(nbytes: int, size: int) -> str:
    return "tree" if nbytes <= 64 * KIB or size == 2 else "rabenseifner"


def _allgather(nbytes: int, size: int) -> str:
    return "tree" if nbytes <= 8 * KIB else "neighbor"


def _allgather_between_hosts(nbytes: int, size: int) -> str:
    return "tree" if nbytes <= 4 * KIB else "two_level"


def _allreduce(nbytes: int, size: int) -> str:
    """Two ranks send as many bytes with recursive doubling as with a ring, but in one round instead of two."""
    if nbytes <= (128 if size == 2 else 64) * KIB:
        return "recursive_doubling"
    power_of_two = size & (size - 1) == 0
    return "rabenseifner" if nbytes <= 4 * MIB and power_of_two and size > 2 else "ring"


def _reduce_scatter(nbytes: int, size: int) -> str:
    return "recursive_halving" if nbytes <= 64 * KIB else "ring"


def _scan(nbytes: int, size: int) -> str:
    """Scan and exscan: between two ranks there is nothing to pipeline."""
    return "tree" if nbytes <= 64 * KIB or size == 2 else "ring"


def _alltoall(nbytes: int, size: int) -> str:
    if nbytes <= 256 and size >= 16:
        return "tree"
    return "naive" if size < 16 else "pairwise"


def _allreduce_between_hosts(nbytes: int, size: int) -> str:
    if nbytes <= 12 * KIB:
        return "recursive_doubling"
    return "two_level_log" if nbytes <= 32 * KIB else "two_level"


_BETWEEN_HOSTS: dict[str, Callable[[int, int], str]] = {
    "bcast": lambda nbytes, size: "tree" if nbytes <= size * KIB else "two_level",  # a chain of all ranks
    "gather": lambda nbytes, size: "naive",
    "reduce": lambda nbytes, size: "tree" if nbytes <= 4 * KIB else "ring",
    "allgather": _allgather_between_hosts,
    "allgatherv": _allgather_between_hosts,
    "allreduce": _allreduce_between_hosts,
    "reduce_scatter": lambda nbytes, size: "recursive_halving" if nbytes <= 4 * KIB else "two_level",
    "scan": lambda nbytes, size: "ring",
    "exscan": lambda nbytes, size: "ring",
}
_FOR_MANY_RANKS = frozenset({"bcast", "allgather", "allgatherv", "allreduce", "reduce_scatter"})
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
    # counts are not known on all ranks, except for allgatherv
    "scatterv": lambda nbytes, size: "naive",
    "gatherv": lambda nbytes, size: "naive",
    "allgatherv": _allgather,
    "alltoallv": lambda nbytes, size: "naive" if size < 16 else "pairwise",
    "alltoallw": lambda nbytes, size: "naive" if size < 16 else "pairwise",
}
_SLOTS = {
    **dict.fromkeys(("scatter", "neighbor_alltoall", "neighbor_allgather"), 256 * KIB),
    "alltoall": 64 * KIB,
    "gather": 4 * MIB,
    **dict.fromkeys(("allgather", "allgatherv"), MIB),
}
# by the name of the library, then for all: up to the first size, MPI is faster, then pycoll up to the second one, ...
_Limits = dict[str, dict[str, tuple[int, ...]]]
_NATIVE: _Limits = {
    "MPICH": {"allgatherv": (16 * KIB,)},
    "Open MPI": {"reduce": (256 * KIB,)},
    "": {
        **dict.fromkeys(("reduce", "allreduce", "reduce_scatter", "scan", "exscan"), (8 * KIB,)),
        "scatter": (64 * KIB,),
        **dict.fromkeys(("gather", "allgather", "alltoall"), (512 * KIB,)),
        "bcast": (MIB,),
    },
}
_NATIVE_BETWEEN_HOSTS: _Limits = {
    "MPICH": {"allreduce": (16, 12 * KIB, 32 * KIB), "reduce": (16,), "scan": (0,), "exscan": (0,)},
    "Open MPI": {"allreduce": (0,), "reduce": (0,), "scan": (32 * KIB,), "exscan": (32 * KIB,)},
    "": {
        "gather": (128,),
        **dict.fromkeys(("bcast", "scatter", "allgather", "allgatherv", "reduce_scatter"), (4 * KIB,)),
        "alltoall": (32 * KIB,),
    },
}
_NATIVE_ONE_RANK_A_HOST: _Limits = {
    "Open MPI": {"allreduce": (0, 12 * KIB, 32 * KIB), "reduce": (256,)},
    "": {"bcast": (0,), "gather": (0,)},
}
_ORDERED: dict[str, Callable[[int], str]] = {
    "reduce": lambda nbytes: "tree",
    "allreduce": lambda nbytes: "recursive_doubling" if nbytes <= 64 * KIB else "double_tree",
    "reduce_scatter": lambda nbytes: "tree",
}
