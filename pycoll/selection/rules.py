"""Rules that select an algorithm if none is requested and there are no measurements.

They follow the costs in the docstrings of the algorithms: few rounds for short messages, few bytes for long ones.  They
also follow measurements on two cores with both MPI wheels (``python -m bench``).
"""

from __future__ import annotations

from collections.abc import Callable

KIB = 1024
UNLIMITED = 1 << 62


def choose(primitive: str, nbytes: int, size: int, commutative: bool = True, hosts: int = 1) -> str:
    """The name of an algorithm for `nbytes` bytes (of the vector, or of the block of one rank) on `size` ranks.

    If blocks differ, `nbytes` is their mean for allgatherv and reduce_scatter; the other v-variants ignore it.

    All arguments are the same on all ranks.  A non-commutative operation gets an algorithm that keeps rank order.
    """
    if primitive in _ORDERED and not commutative:
        return _ORDERED[primitive](nbytes)
    if hosts > 1 and nbytes > _BETWEEN_HOSTS.get(primitive, nbytes):
        return "two_level"
    return _RULES[primitive](nbytes, size)


def slots_up_to(primitive: str, library: str = "") -> int:
    """The largest size, counted as in `choose`, of calls inside a host that run through shared memory.

    Reductions of all sizes do.  Long blocks that are only moved cross the caches twice through slots; MPI copies them
    once.  The limits were measured with both MPI wheels.
    """
    if primitive == "reduce" and library.startswith("Open MPI"):  # in a tree, without the result on other ranks
        return 16 * KIB
    return _SLOTS.get(primitive, UNLIMITED)


def native_up_to(primitive: str, library: str = "", registered: bool = False, own_cores: bool = False) -> int:
    """The largest size, counted as in `choose`, of calls of `pycoll.Comm` without `algorithm` that are left to MPI.

    Latency decides for small messages, and pycoll adds Python overhead.  If counts are not known on all ranks, calls of
    all sizes are left to MPI.  `library` is the name of the MPI library; `registered` is True if the communicator has
    registered memory, which is used for longer calls; `own_cores` is True if all ranks are on one host and no rank has
    to wait for a core, so that they synchronize in little time.
    """
    if registered and primitive in _MOVERS:
        if not own_cores:
            return 128 * KIB
        slow = primitive == "allgather" and library.startswith("MPICH")  # two to five times the time of other libraries
        return 32 * KIB - 1 if slow else 64 * KIB
    if registered and (primitive in _NATIVE or primitive == "allgatherv"):
        return min(native_up_to(primitive, library), 64 * KIB)
    for name, limits in _NATIVE_BY_LIBRARY.items():
        if library.startswith(name) and primitive in limits:
            return limits[primitive]
    return _NATIVE.get(primitive, UNLIMITED)


def native_if_ordinary(primitive: str, library: str = "") -> int:
    """The largest size of such calls that MPI runs if the buffers turn out not to be registered.

    The ranks have synchronized to find this out, and messages of pycoll would take more time than MPI.
    """
    longest = min(native_up_to(primitive, library), 1024 * KIB)
    return max(longest, 512 * KIB) if primitive in _MOVERS else longest


def registered_from(primitive: str, form: str = "blocking") -> int:
    """The smallest size, counted as in `choose`, for which calls of a form use registered buffers.

    For shorter ones, exchanging the positions of the buffers takes longer than messages, if buffers are in new
    positions in each call.  Nonblocking and persistent calls synchronize with messages, which takes longer still.
    Persistent calls are the fastest on ordinary buffers, so that registered buffers pay off last.
    """
    unit = 64 * KIB if primitive in _OF_VECTORS else 32 * KIB
    if form == "blocking":
        return unit // 2 if primitive in _SOON_REGISTERED else unit
    return unit * {"nonblocking": 2, "persistent": 4}[form]


def _bcast(nbytes: int, size: int) -> str:
    return "tree" if nbytes <= 512 * KIB or size <= 4 else "ring"


def _to_or_from_root(nbytes: int, size: int) -> str:
    """Scatter and gather: a tree needs fewer rounds, but forwards bytes that could be sent directly."""
    return "tree" if nbytes <= 2 * KIB and size > 4 else "naive"


def _reduce(nbytes: int, size: int) -> str:
    return "tree" if nbytes <= 64 * KIB or size == 2 else "rabenseifner"


def _allgather(nbytes: int, size: int) -> str:
    return "tree" if nbytes <= 8 * KIB else "neighbor"


def _allreduce(nbytes: int, size: int) -> str:
    """Two ranks send as many bytes with recursive doubling as with a ring, but in one round instead of two."""
    if nbytes <= (128 if size == 2 else 64) * KIB:
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


# sizes above which the bytes between hosts decide
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
    # counts are not known on all ranks, except for allgatherv
    "scatterv": lambda nbytes, size: "naive",
    "gatherv": lambda nbytes, size: "naive",
    "allgatherv": _allgather,
    "alltoallv": lambda nbytes, size: "naive" if size < 16 else "pairwise",
    "alltoallw": lambda nbytes, size: "naive" if size < 16 else "pairwise",
}
_NATIVE = {
    **dict.fromkeys(("reduce", "allreduce", "reduce_scatter", "scan", "exscan"), 8 * KIB),
    "scatter": 64 * KIB,
    **dict.fromkeys(("gather", "allgather", "alltoall"), 512 * KIB),
    "bcast": 1024 * KIB,
}
_SLOTS = {
    **dict.fromkeys(("bcast", "allgather", "allgatherv"), 16 * KIB),
    **dict.fromkeys(("scatter", "gather", "alltoall"), 32 * KIB),
}
_NATIVE_BY_LIBRARY = {"MPICH": {"allgatherv": 16 * KIB}, "Open MPI": {"reduce": 256 * KIB}}
_MOVERS = frozenset(("bcast", "scatter", "gather", "allgather", "alltoall"))
_OF_VECTORS = frozenset(("bcast", "reduce", "allreduce", "scan", "exscan"))  # the size of others is that of a block
_SOON_REGISTERED = frozenset(("allreduce", "scan", "exscan", "allgather", "allgatherv", "alltoall"))
_ORDERED: dict[str, Callable[[int], str]] = {
    "reduce": lambda nbytes: "tree",
    "allreduce": lambda nbytes: "recursive_doubling" if nbytes <= 64 * KIB else "double_tree",
    "reduce_scatter": lambda nbytes: "tree",
}
