"""The algorithms of Open MPI, and the files of dynamic rules that it reads.

The component ``tuned`` has the algorithms.  On several hosts, the component ``han`` comes first, which has a level for
each host; a second file makes it leave some calls to ``tuned``.  See ``coll_tuned_dynamic_file.c`` and
``coll_han_dynamic_file.h`` of Open MPI.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from mpi4py import MPI

from pycoll.runtime import native
from pycoll.selection.tuning_file import Candidate

from .mpi_t import ControlVariables
from .rules import DEFAULT, Range, Rules

# The numbers in the files (coll_base_functions.h).  Gather and scatter are missing: Open MPI compares the size of the
# send buffer, which only the root of a scatter knows, and not the root of a gather in place.  Ranks that select
# different algorithms wait for each other forever.
COLLECTIVES = {
    "allgather": 0,
    "allreduce": 2,
    "alltoall": 3,
    "barrier": 6,
    "bcast": 7,
    "reduce": 11,
    "reduce_scatter": 13,
}
SEGMENTED = {  # the algorithms that cut the vector into segments
    "allreduce": ("segmented_ring",),
    "bcast": ("chain", "pipeline", "split_binary_tree", "binary_tree", "binomial", "knomial"),
    "reduce": ("chain", "pipeline", "binary", "binomial", "in-order_binary"),
}
SEGMENTS = (8 << 10, 32 << 10, 128 << 10)
OF_HAN = ("allgather", "allreduce", "barrier", "bcast", "reduce")
PER_RANK = ("allgather",)  # `han` compares the bytes of one rank, `tuned` those of all ranks
GLOBAL, TUNED, HAN = 2, 3, 6  # the level and the components in the file of `han` (coll_han_dynamic.h)
FILES = {"tuned.rules": ("tuned", "use_dynamic_rules"), "han.rules": ("han", "use_dynamic_file_rules")}
FIXED = "fixed"  # the algorithm that `tuned` selects itself; another one than `DEFAULT` on several hosts


def _variable(primitive: str) -> str:
    name = native.function_name(primitive).lower()
    return f"coll_tuned_{name}_algorithm"


class OpenMpi:
    """Open MPI: a new communicator takes its algorithms from the control variables, and keeps them."""

    names = tuple(FILES)
    primitives = tuple(COLLECTIVES)
    for_any_operation = True

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm, self.variable = comm, ControlVariables()

    def algorithms(self, primitive: str, nbytes: int) -> list[str]:
        """Return all algorithms of `tuned`, some with segments of several sizes."""
        names = [name for name in self.variable.values(_variable(primitive)) if name != "ignore"]
        found = [Candidate(name) for name in names if name != "segmented_ring"]
        for name in SEGMENTED.get(primitive, ()):
            found += [Candidate(name, segment) for segment in SEGMENTS if segment < nbytes]
        return [FIXED, *map(str, found)]

    def communicator(self, primitive: str, algorithm: str) -> MPI.Intracomm:
        """Return a new communicator whose calls have this algorithm."""
        if algorithm == DEFAULT:
            return self.comm.Dup()
        number, segment = self._numbers(primitive, algorithm)
        values = {
            "coll_tuned_priority": 100,
            "coll_tuned_use_dynamic_rules": 1,
            _variable(primitive): number,
            f"{_variable(primitive)}_segmentsize": segment,
        }
        values = {name: value for name, value in values.items() if name in self.variable}
        before = {name: self.variable[name] for name in values}
        try:
            for name, value in values.items():
                self.variable[name] = value
            return self.comm.Dup()
        finally:
            for name, value in before.items():
                self.variable[name] = value

    def select(self, primitive: str, algorithm: str, strictly: bool = False) -> None:
        """Do nothing: the communicator decides, and no algorithm is replaced by another one."""

    def files(self, rules: Rules, on_several_hosts: set[int]) -> dict[str, str]:
        """Return the rules of `tuned`; on several hosts also those of `han`, which leave calls to `tuned`."""
        left = {
            primitive: {ranks: ranges for ranks, ranges in of_ranks.items() if ranks in on_several_hosts}
            for primitive, of_ranks in rules.items()
            if primitive in OF_HAN
        }
        left = {primitive: of_ranks for primitive, of_ranks in left.items() if of_ranks}
        return {"tuned.rules": self._tuned(rules)} | ({"han.rules": _han(left)} if left else {})

    def variables(self, paths: dict[str, str]) -> dict[str, str]:
        """Return the variables for each file: a switch and the name of the file."""
        found = {}
        for name, path in paths.items():
            component, switch = FILES[name]
            found[f"OMPI_MCA_coll_{component}_{switch}"] = "true"
            found[f"OMPI_MCA_coll_{component}_dynamic_rules_filename"] = path
        return found

    def _numbers(self, primitive: str, algorithm: str) -> tuple[int, int]:
        """Return the number of an algorithm, and its segment in bytes (0: none)."""
        if algorithm == FIXED:
            return 0, 0
        name, segment = Candidate.parse(algorithm)
        return self.variable.values(_variable(primitive))[name], segment or 0

    def _fanout(self, primitive: str) -> int:
        return self.variable.get(f"{_variable(primitive)}_chain_fanout", 0)

    def _tuned(self, rules: Rules) -> str:
        def selected(primitive: str, algorithm: str) -> str:
            number, segment = self._numbers(primitive, algorithm)
            return f"{number} {self._fanout(primitive)} {segment} # {algorithm}"

        lines = [f"{len(rules)} # collectives"]
        for primitive, of_ranks in rules.items():
            lines += [
                f"{COLLECTIVES[primitive]} # {primitive}",
                *_of_ranks(of_ranks, partial(selected, primitive), "0 0 0 # as without rules"),
            ]
        return "\n".join(lines) + "\n"


def _han(rules: Rules) -> str:
    lines = [f"{len(rules)} # collectives"]
    for primitive, of_ranks in rules.items():
        if primitive in PER_RANK:
            of_ranks = {ranks: _per_rank(ranges, ranks) for ranks, ranges in of_ranks.items()}
        lines += [f"{COLLECTIVES[primitive]} # {primitive}", "1 # level", f"{GLOBAL} # all ranks"]
        lines += _of_ranks(of_ranks, lambda algorithm: f"{TUNED} # tuned", f"{HAN} # han")
    return "\n".join(lines) + "\n"


def _per_rank(ranges: list[Range], ranks: int) -> list[Range]:
    found = [Range(-(-one.least // ranks), one.most // ranks, one.algorithm) for one in ranges]
    return [one for one in found if one.least <= one.most]


def _of_ranks(rules: dict[int, list[Range]], selected: Callable[[str], str], otherwise: str) -> Iterator[str]:
    """Yield the lines for each number of ranks; a rule holds up to the next larger number of ranks or bytes."""
    of_ranks: dict[int, list[Range]] = {1: []} | {ranks + 1: [] for ranks in rules} | rules
    yield f"{len(of_ranks)} # numbers of ranks"
    for ranks, ranges in sorted(of_ranks.items()):
        starts = {0: otherwise} | {one.most + 1: otherwise for one in ranges}
        starts |= {one.least: selected(one.algorithm) for one in ranges}
        yield from (f"{ranks} # ranks", f"{len(starts)} # sizes")
        yield from (f"{nbytes} {what}" for nbytes, what in sorted(starts.items()))
