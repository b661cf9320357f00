"""The algorithms of MPICH, and the JSON files of rules that it reads.

MPICH first selects a composition (with or without a level for the ranks of each host), then an algorithm for each
level.  Its own rules for both are JSON texts inside the library.  An exported file has these rules, with new ones in
front of them for the measured numbers of ranks.  See ``doc/mpich/tuning_parameters.md`` and ``csel.c`` of MPICH.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mpi4py import MPI

from pycoll.runtime import native

from .mpi_t import ControlVariables
from .rules import DEFAULT, Range, Rules

Tree = dict[str, Any]  # of conditions; the first one that holds is followed

ALGORITHMS: dict[str, dict[str, tuple[str, ...]]] = {  # those without parameters, and the conditions of each
    "bcast": {"binomial": (), "scatter_recursive_doubling_allgather": (), "scatter_ring_allgather": ()},
    "allreduce": {
        "recursive_doubling": (),
        "reduce_scatter_allgather": ("is_op_built_in=yes", "count>=pow2"),
        "ring": ("is_commutative=yes",),
    },
    "reduce": {"binomial": (), "reduce_scatter_gather": ("is_op_built_in=yes", "count>=pow2")},
    "allgather": {"brucks": (), "recursive_doubling": (), "ring": ()},
    "alltoall": dict.fromkeys(("brucks", "pairwise", "scattered"), ("is_sendbuf_inplace=no",)),
    "reduce_scatter": {
        "noncommutative": (),
        "recursive_doubling": (),
        "pairwise": ("is_commutative=yes",),
        "recursive_halving": ("is_commutative=yes",),
    },
}
FLAT = {  # the composition without levels, if there is a choice: its number and its name
    "bcast": (3, "MPIDI_Bcast_intra_composition_gamma"),
    "allreduce": (2, "MPIDI_Allreduce_intra_composition_beta"),
    "reduce": (3, "MPIDI_Reduce_intra_composition_gamma"),
}
OPPOSITE = {
    "is_op_built_in=yes": "is_op_built_in=no",
    "is_commutative=yes": "is_commutative=no",
    "is_sendbuf_inplace=no": "is_sendbuf_inplace=yes",
}
FILES = {
    "algorithms.json": "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE",
    "compositions.json": "MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE",
}


class Mpich:
    """MPICH: the control variables select the algorithm of each call."""

    names = tuple(FILES)
    primitives = tuple(ALGORITHMS)
    for_any_operation = False

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm, self.variable = comm, ControlVariables()
        self.own = own_rules(Path(native.library_file()).read_bytes())

    def algorithms(self, primitive: str, nbytes: int) -> list[str]:
        """Return the algorithms without parameters."""
        return list(ALGORITHMS[primitive])

    def communicator(self, primitive: str, algorithm: str) -> MPI.Intracomm:
        """Return the one communicator that all calls have."""
        return self.comm

    def select(self, primitive: str, algorithm: str, strictly: bool = False) -> None:
        """Set the control variables, which each call reads."""
        self._set("MPIR_CVAR_COLLECTIVE_FALLBACK", "error" if strictly else "silent")
        name = _name(primitive).upper()
        self._set(f"MPIR_CVAR_{name}_INTRA_ALGORITHM", "auto" if algorithm == DEFAULT else algorithm)
        if primitive in FLAT:
            self.variable[f"MPIR_CVAR_{name}_COMPOSITION"] = 0 if algorithm == DEFAULT else FLAT[primitive][0]

    def _set(self, variable: str, value: str) -> None:
        self.variable[variable] = self.variable.values(variable)[value]

    def files(self, rules: Rules, on_several_hosts: set[int]) -> dict[str, str]:
        """Return the rules for algorithms and for compositions."""
        algorithms, compositions = self.own
        flat = {primitive: of_ranks for primitive, of_ranks in rules.items() if primitive in FLAT}
        trees = {
            "algorithms.json": with_rules(algorithms, rules, _algorithm),
            "compositions.json": with_rules(compositions, flat, _composition),
        }
        return {name: json.dumps(tree, indent=1) for name, tree in trees.items()}

    def variables(self, paths: dict[str, str]) -> dict[str, str]:
        """Return the variable for each file."""
        return {FILES[name]: path for name, path in paths.items()}


def own_rules(library: bytes) -> tuple[Tree, Tree]:
    """Return the rules for algorithms and for compositions in a library; raise ValueError if it has none."""
    texts = [
        library[found.start() : library.index(b"\0", found.start())]
        for found in re.finditer(rb'\{\s*"collective=', library)
    ]
    algorithms, compositions = (
        [text for text in texts if leaf in text] for leaf in (b'"algorithm=MPIR_', b'"composition=MPIDI_')
    )
    if len(algorithms) != 1 or len(compositions) != 1:
        raise ValueError("this MPICH has no rules for algorithms and compositions (MPICH 4.0 or later, device ch4)")
    return json.loads(algorithms[0]), json.loads(compositions[0])


def with_rules(own: Tree, rules: Rules, leaf: Callable[[str, str, Tree], Tree]) -> Tree:
    """Return the rules `own` with those of `rules` in front of them; `leaf` gives the tree of one algorithm."""
    tree = dict(own)
    for primitive, of_ranks in rules.items():
        collective = f"collective={_name(primitive)}"
        before = own[collective]["comm_type=intra"]
        sizes = [
            (ranks, ranks, _steps(_bytes(primitive), _leaves(primitive, ranges, leaf, before), before))
            for ranks, ranges in sorted(of_ranks.items())
        ]
        tree[collective] = own[collective] | {"comm_type=intra": _steps("comm_size", sizes, before)}
    return tree


def _leaves(
    primitive: str, ranges: Iterable[Range], leaf: Callable[[str, str, Tree], Tree], own: Tree
) -> list[tuple[int, int, Tree]]:
    return [(least, most, leaf(primitive, algorithm, own)) for least, most, algorithm in ranges]


def _steps(what: str, pieces: Iterable[tuple[int, int, Tree]], otherwise: Tree) -> Tree:
    """Return a tree that follows a piece from `least` to `most`, and `otherwise` between the pieces."""
    tree, end = {}, -1
    for least, most, piece in pieces:
        if least > end + 1:
            tree[f"{what}<={least - 1}"] = otherwise
        tree[f"{what}<={most}"] = piece
        end = most
    return tree | {f"{what}=any": otherwise}


def _bytes(primitive: str) -> str:
    """Return the name of the size that MPICH compares; both are the bytes of `Range`."""
    return "avg_msg_size" if primitive in ("allreduce", "bcast", "reduce") else "total_msg_size"


def _algorithm(primitive: str, algorithm: str, own: Tree) -> Tree:
    leaf = f"algorithm=MPIR_{_name(primitive).capitalize()}_intra_{algorithm}"
    return _where_it_can_run(primitive, algorithm, {leaf: {}}, own)


def _composition(primitive: str, algorithm: str, own: Tree) -> Tree:
    return _where_it_can_run(primitive, algorithm, {f"composition={FLAT[primitive][1]}": {}}, own)


def _where_it_can_run(primitive: str, algorithm: str, tree: Tree, own: Tree) -> Tree:
    """Return a tree that follows `tree` if the conditions of an algorithm hold, and `own` if not."""
    for condition in ALGORITHMS[primitive][algorithm]:
        if condition == "count>=pow2":
            tree = {"count<pow2": own, "count=any": tree}
        else:
            tree = {condition: tree, OPPOSITE[condition]: own}
    return tree


def _name(primitive: str) -> str:
    return native.function_name(primitive).lower()
