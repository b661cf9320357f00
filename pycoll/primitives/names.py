"""The names of algorithms, and types for them, with which type checkers reject ``algorithm="rign"``.

Write ``pycoll.AlgorithmName(name)`` for a name that is known only at run time.  The tests compare these types with the
registry.
"""

from __future__ import annotations

from typing import Literal, NewType

from ..schedule.registry import algorithms_of

AlgorithmName = NewType("AlgorithmName", str)
"""The name of an algorithm, read from a command line or registered by the program."""


def algorithms(primitive: str) -> list[AlgorithmName]:
    """List the names of the algorithms of a primitive.

    Parameters
    ----------
    primitive : str
        The name of a collective, for example "allreduce".

    Returns
    -------
    list of str
        The names that ``algorithm=`` accepts.

    Raises
    ------
    ValueError
        If there is no such primitive.
    """
    return [AlgorithmName(name) for name in algorithms_of(primitive)]


Bcast = (
    AlgorithmName
    | Literal[
        "naive",
        "tree",
        "ring",
        "knomial:4",
        "knomial:8",
        "two_level",
        "scatter_allgather",
        "bine",
        "two_level_log",
        "native",
    ]
)
Scatter = AlgorithmName | Literal["naive", "tree", "ring", "knomial:4", "knomial:8", "bine", "two_level", "native"]
Gather = AlgorithmName | Literal["naive", "tree", "ring", "knomial:4", "knomial:8", "bine", "two_level", "native"]
Reduce = (
    AlgorithmName
    | Literal["naive", "tree", "ring", "knomial:4", "knomial:8", "rabenseifner", "bine", "two_level", "native"]
)
Allgather = (
    AlgorithmName
    | Literal[
        "naive",
        "tree",
        "ring",
        "recursive_multiplying:4",
        "recursive_multiplying:8",
        "two_level",
        "bruck",
        "neighbor",
        "swing",
        "bine",
        "pat:2",
        "pat:8",
        "two_level_log",
        "native",
    ]
)
Allreduce = (
    AlgorithmName
    | Literal[
        "naive",
        "tree",
        "ring",
        "knomial:4",
        "knomial:8",
        "recursive_doubling",
        "recursive_multiplying:4",
        "recursive_multiplying:8",
        "rabenseifner",
        "double_tree",
        "two_level",
        "ring_whole",
        "bruck_whole",
        "swing",
        "bucket:2",
        "torus_swing:2",
        "bine",
        "two_level_log",
        "native",
    ]
)
ReduceScatter = (
    AlgorithmName
    | Literal[
        "naive",
        "tree",
        "ring",
        "recursive_halving",
        "pairwise",
        "two_level",
        "recursive_multiplying:4",
        "recursive_multiplying:8",
        "swing",
        "bine",
        "pat:2",
        "pat:8",
        "two_level_log",
        "native",
    ]
)
Alltoall = (
    AlgorithmName | Literal["naive", "tree", "ring", "pairwise", "bine", "grid:2", "grid:3", "two_level", "native"]
)
Barrier = (
    AlgorithmName
    | Literal[
        "naive",
        "tree",
        "ring",
        "dissemination",
        "recursive_multiplying:4",
        "recursive_multiplying:8",
        "two_level",
        "native",
    ]
)
Scan = AlgorithmName | Literal["naive", "tree", "ring", "native"]
Exscan = AlgorithmName | Literal["naive", "tree", "ring", "native"]
Scatterv = AlgorithmName | Literal["naive", "tree", "ring", "native"]
Gatherv = AlgorithmName | Literal["naive", "tree", "ring", "native"]
Allgatherv = (
    AlgorithmName
    | Literal[
        "naive",
        "tree",
        "ring",
        "recursive_multiplying:4",
        "recursive_multiplying:8",
        "two_level",
        "bruck",
        "neighbor",
        "swing",
        "bine",
        "pat:2",
        "pat:8",
        "two_level_log",
        "native",
    ]
)
Alltoallv = AlgorithmName | Literal["naive", "pairwise", "tree", "ring", "native"]
Alltoallw = AlgorithmName | Literal["naive", "pairwise", "native"]

# of both allgather and reduce_scatter
Sharding = (
    AlgorithmName
    | Literal[
        "naive",
        "tree",
        "ring",
        "recursive_multiplying:4",
        "recursive_multiplying:8",
        "two_level",
        "swing",
        "bine",
        "pat:2",
        "pat:8",
        "two_level_log",
    ]
)
