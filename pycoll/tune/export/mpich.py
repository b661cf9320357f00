"""The algorithms of MPICH, and the JSON files of rules that it reads.

MPICH first selects a composition (with or without a level for the ranks of each host), then an algorithm for each
level.  Its own rules for both are JSON texts inside the library.  An exported file has these rules, with new ones in
front of them for the measured numbers of ranks.  See ``doc/mpich/tuning_parameters.md`` and ``csel.c`` of MPICH.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from mpi4py import MPI

from pycoll.runtime import native

from .mpi_t import ControlVariables
from .rules import DEFAULT, Range, Rules

Tree = dict[str, Any]  # of conditions; the first one that holds is followed

ALGORITHMS: dict[str, dict[str, tuple[str, ...]]] = {  # and the conditions of each
    "bcast": dict.fromkeys(
        ("binomial", "scatter_recursive_doubling_allgather", "scatter_ring_allgather", "tree", "pipelined_tree"),
        (),
    ),
    "allreduce": {
        "recursive_doubling": (),
        "reduce_scatter_allgather": ("is_op_built_in=yes", "count>=pow2"),
        **dict.fromkeys(
            ("ring", "tree", "recexch", "recursive_multiplying", "k_reduce_scatter_allgather"), ("is_commutative=yes",)
        ),
    },
    "reduce": {"binomial": (), "reduce_scatter_gather": ("is_op_built_in=yes", "count>=pow2")},
    "allgather": dict.fromkeys(
        ("brucks", "recursive_doubling", "ring", "k_brucks", "recexch_doubling", "recexch_halving"), ()
    ),
    "alltoall": dict.fromkeys(("brucks", "pairwise", "scattered", "k_brucks"), ("is_sendbuf_inplace=no",)),
    "reduce_scatter": {
        "noncommutative": (),
        "recursive_doubling": (),
        "pairwise": ("is_commutative=yes",),
        "recursive_halving": ("is_commutative=yes",),
    },
}
_TOPOLOGY = {
    f"topo_{what}": f"TOPO_{what.upper()}" for what in ("overhead", "diff_groups", "diff_switches", "same_switches")
}
_TREE = {"tree_type": "TREE_TYPE", "k": "TREE_KVAL"}
_RECEXCH = {"k": "RECEXCH_KVAL", "single_phase_recv": "RECEXCH_SINGLE_PHASE_RECV"}
# The parameters of algorithms in the files (csel_container.c), and their control variables (coll_algorithms.txt),
# without MPIR_CVAR and the name of the collective.
PARAMETERS: dict[str, dict[str, dict[str, str]]] = {
    "bcast": {
        "tree": _TREE | {"is_non_blocking": "IS_NON_BLOCKING"} | _TOPOLOGY,
        "pipelined_tree": _TREE
        | {
            "is_non_blocking": "IS_NON_BLOCKING",
            "chunk_size": "TREE_PIPELINE_CHUNK_SIZE",
            "recv_pre_posted": "RECV_PRE_POST",
        },
    },
    "allreduce": {
        "tree": _TREE
        | {"chunk_size": "TREE_PIPELINE_CHUNK_SIZE", "buffer_per_child": "TREE_BUFFER_PER_CHILD"}
        | _TOPOLOGY,
        "recexch": _RECEXCH,
        "recursive_multiplying": {"k": "RECURSIVE_MULTIPLYING_KVAL"},
        "k_reduce_scatter_allgather": _RECEXCH,
    },
    "allgather": {"k_brucks": {"k": "BRUCKS_KVAL"}, "recexch_doubling": _RECEXCH, "recexch_halving": _RECEXCH},
    "alltoall": {"k_brucks": {"k": "BRUCKS_KVAL"}},
}
DEGREES = (2, 4, 8)  # the values of k that are measured
CHUNKS = (8 << 10, 32 << 10, 128 << 10)  # and the sizes of chunks in bytes
TREE_TYPES = ("kary", "knomial_1", "knomial_2")  # those that the files can name
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
        """Return the algorithms of this library, those with parameters for several values of k and chunk_size."""
        known = self.variable.values(_variable(primitive, "INTRA_ALGORITHM"))
        return [
            _named(name, dict(zip(varied, values)))
            for name in ALGORITHMS[primitive]
            if name in known and (varied := self._varied(primitive, name, nbytes)) is not None
            for values in product(*varied.values())
        ]

    def _varied(self, primitive: str, name: str, nbytes: int) -> dict[str, list[int]] | None:
        """Return the values of the parameters that are varied; None if this library lacks a parameter."""
        variables = PARAMETERS.get(primitive, {}).get(name, {})
        if any(_variable(primitive, each) not in self.variable for each in variables.values()):
            return None
        chain = False  # a tree with one child, for a pipeline
        if "tree_type" in variables:
            tree_type = self.variable.text(_variable(primitive, variables["tree_type"]))
            if tree_type not in TREE_TYPES:
                return None
            chain = tree_type == "kary" and name == "pipelined_tree"
        whole = [] if name == "pipelined_tree" else [0]
        values = {
            "k": [1] * chain + [k for k in DEGREES if k // 2 < self.comm.size],  # a larger one changes nothing
            "chunk_size": whole + [chunk for chunk in CHUNKS if chunk < nbytes],
        }
        return {parameter: values[parameter] for parameter in values if parameter in variables}

    def parameters(self, primitive: str, algorithm: str) -> dict[str, int | str]:
        """Return all parameters of an algorithm: those in its name, and the others as the library has them."""
        name, given = _parsed(algorithm)
        found: dict[str, int | str] = {}
        for parameter, suffix in PARAMETERS.get(primitive, {}).get(name, {}).items():
            variable = _variable(primitive, suffix)
            if parameter == "tree_type":
                found[parameter] = self.variable.text(variable)
            else:
                found[parameter] = given[parameter] if parameter in given else self.variable[variable]
        return found

    def communicator(self, primitive: str, algorithm: str) -> MPI.Intracomm:
        """Return the one communicator that all calls have."""
        return self.comm

    def select(self, primitive: str, algorithm: str, strictly: bool = False) -> None:
        """Set the control variables, which each call reads."""
        self._set("MPIR_CVAR_COLLECTIVE_FALLBACK", "error" if strictly else "silent")
        name, given = _parsed(algorithm)
        for parameter, value in given.items():
            self.variable[_variable(primitive, PARAMETERS[primitive][name][parameter])] = value
        self._set(_variable(primitive, "INTRA_ALGORITHM"), "auto" if algorithm == DEFAULT else name)
        if primitive in FLAT:
            self.variable[_variable(primitive, "COMPOSITION")] = 0 if algorithm == DEFAULT else FLAT[primitive][0]

    def _set(self, variable: str, value: str) -> None:
        self.variable[variable] = self.variable.values(variable)[value]

    def files(self, rules: Rules, on_several_hosts: set[int]) -> dict[str, str]:
        """Return the rules for algorithms and for compositions."""
        algorithms, compositions = self.own
        flat = {primitive: of_ranks for primitive, of_ranks in rules.items() if primitive in FLAT}
        trees = {
            "algorithms.json": with_rules(algorithms, rules, partial(algorithm_tree, parameters=self.parameters)),
            "compositions.json": with_rules(compositions, flat, composition_tree),
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


def _named(name: str, parameters: dict[str, int]) -> str:
    """Return the name of an algorithm with parameters: ``tree:k=2,chunk_size=8192``."""
    return f"{name}:{','.join(f'{key}={value}' for key, value in parameters.items())}" if parameters else name


def _parsed(algorithm: str) -> tuple[str, dict[str, int]]:
    name, _, text = algorithm.partition(":")
    pairs = [part.split("=") for part in text.split(",")] if text else []
    return name, {parameter: int(value) for parameter, value in pairs}


def algorithm_tree(
    primitive: str, algorithm: str, own: Tree, parameters: Callable[[str, str], dict[str, int | str]]
) -> Tree:
    """Return the tree that selects an algorithm with its parameters, where it can run."""
    leaf = f"algorithm=MPIR_{_name(primitive).capitalize()}_intra_{_parsed(algorithm)[0]}"
    given: Tree = {f"{parameter}={value}": {} for parameter, value in parameters(primitive, algorithm).items()}
    return _where_it_can_run(primitive, algorithm, {leaf: given}, own)


def composition_tree(primitive: str, algorithm: str, own: Tree) -> Tree:
    """Return the tree that selects the composition without levels, where it can run."""
    return _where_it_can_run(primitive, algorithm, {f"composition={FLAT[primitive][1]}": {}}, own)


def _where_it_can_run(primitive: str, algorithm: str, tree: Tree, own: Tree) -> Tree:
    """Return a tree that follows `tree` if the conditions of an algorithm hold, and `own` if not."""
    for condition in ALGORITHMS[primitive][_parsed(algorithm)[0]]:
        if condition == "count>=pow2":
            tree = {"count<pow2": own, "count=any": tree}
        else:
            tree = {condition: tree, OPPOSITE[condition]: own}
    return tree


def _variable(primitive: str, suffix: str) -> str:
    return f"MPIR_CVAR_{_name(primitive).upper()}_{suffix}"


def _name(primitive: str) -> str:
    return native.function_name(primitive).lower()
