# Written by `python -m pycoll.primitives.names`
# fmt: off

from typing import Literal, NewType, TypeAlias

AlgorithmName = NewType("AlgorithmName", str)
def algorithms(primitive: str) -> list[AlgorithmName]: ...
Bcast: TypeAlias = AlgorithmName | Literal[
    "naive", "tree", "ring", "knomial:4", "knomial:8", "two_level", "scatter_allgather", "bine", "two_level_log",
    "hierarchical:levels=node+numa", "native"
]
Scatter: TypeAlias = AlgorithmName | Literal[
    "naive", "tree", "ring", "knomial:4", "knomial:8", "bine", "two_level", "native"
]
Gather: TypeAlias = AlgorithmName | Literal[
    "naive", "tree", "ring", "knomial:4", "knomial:8", "bine", "two_level", "native"
]
Reduce: TypeAlias = AlgorithmName | Literal[
    "naive", "tree", "ring", "knomial:4", "knomial:8", "rabenseifner", "bine", "two_level",
    "hierarchical:levels=node+numa", "native"
]
Allgather: TypeAlias = AlgorithmName | Literal[
    "naive", "tree", "ring", "recursive_multiplying:4", "recursive_multiplying:8", "two_level", "bruck", "neighbor",
    "swing", "bine", "pat:2", "pat:8", "trivance", "two_level_log", "hierarchical:levels=node+numa", "native"
]
Allreduce: TypeAlias = AlgorithmName | Literal[
    "naive", "tree", "ring", "knomial:4", "knomial:8", "recursive_doubling", "recursive_multiplying:4",
    "recursive_multiplying:8", "rabenseifner", "double_tree", "two_level", "ring_whole", "bruck_whole", "swing",
    "trivance", "bucket:2", "torus_swing:2", "bine", "two_level_log", "hierarchical:levels=node+numa", "native"
]
ReduceScatter: TypeAlias = AlgorithmName | Literal[
    "naive", "tree", "ring", "recursive_halving", "pairwise", "two_level", "recursive_multiplying:4",
    "recursive_multiplying:8", "swing", "bine", "pat:2", "pat:8", "trivance", "two_level_log",
    "hierarchical:levels=node+numa", "native"
]
Alltoall: TypeAlias = AlgorithmName | Literal[
    "naive", "tree", "ring", "pairwise", "bine", "grid:2", "grid:3", "two_level", "native"
]
Barrier: TypeAlias = AlgorithmName | Literal[
    "naive", "tree", "ring", "dissemination", "recursive_multiplying:4", "recursive_multiplying:8", "two_level",
    "hierarchical:levels=node+numa", "native"
]
Scan: TypeAlias = AlgorithmName | Literal[
    "naive", "tree", "ring", "native"
]
Exscan: TypeAlias = AlgorithmName | Literal[
    "naive", "tree", "ring", "native"
]
Scatterv: TypeAlias = AlgorithmName | Literal[
    "naive", "tree", "ring", "native"
]
Gatherv: TypeAlias = AlgorithmName | Literal[
    "naive", "tree", "ring", "native"
]
Allgatherv: TypeAlias = AlgorithmName | Literal[
    "naive", "tree", "ring", "recursive_multiplying:4", "recursive_multiplying:8", "two_level", "bruck", "neighbor",
    "swing", "bine", "pat:2", "pat:8", "trivance", "two_level_log", "hierarchical:levels=node+numa", "native"
]
Alltoallv: TypeAlias = AlgorithmName | Literal[
    "naive", "pairwise", "tree", "ring", "native"
]
Alltoallw: TypeAlias = AlgorithmName | Literal[
    "naive", "pairwise", "native"
]
Neighbors: TypeAlias = AlgorithmName | Literal[
    "direct", "two_level", "native"
]
NeighborAlltoall: TypeAlias = AlgorithmName | Literal[
    "direct", "two_level", "combining", "native"
]
Sharding: TypeAlias = AlgorithmName | Literal[
    "naive", "tree", "ring", "recursive_multiplying:4", "recursive_multiplying:8", "two_level", "swing", "bine",
    "pat:2", "pat:8", "trivance", "two_level_log", "hierarchical:levels=node+numa"
]
