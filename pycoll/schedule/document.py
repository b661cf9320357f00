"""Schedules as JSON documents: the rounds of all ranks, for one number of ranks and one root.

`document_of` writes out the rounds of an algorithm; ``python -m pycoll.export`` prints them.  `algorithm_of` makes an
algorithm from a document, whoever wrote it: the option ``--file`` of the commands registers it.  The moves are those of
`pycoll.schedule.moves`::

    {"send": [3], "to": 1}
    {"receive": [2], "from": 3}
    {"reduce": [2], "from": 3, "order": "after"}
    {"copy": 0, "to": [1, 0]}
    {"combine": [1, 0], "into": 0, "order": "before"}

A block is a number, or a list such as ``[1, 0]`` for the copy of block 0 on rank 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from .hosts import Hosts
from .moves import AFTER, BEFORE, Block, Combine, Copy, Move, Recv, Reduce, Round, Schedule, Send
from .registry import PRIMITIVES, Algorithm

VERSION = 1
MOST_PARTS = 1 << 16  # of a vector, if there are few ranks
FIELDS = {  # of the moves: what the first one is in the tuple, and the others
    "send": (Send, ("to",)),
    "receive": (Recv, ("from",)),
    "reduce": (Reduce, ("from", "order")),
    "copy": (Copy, ("to",)),
    "combine": (Combine, ("into", "order")),
}
PEERS = Send, Recv, Reduce


def document_of(
    algorithm: Algorithm, ranks: int, root: int = 0, segments: int = 1, hosts: Hosts = None
) -> dict[str, Any]:
    """Return the schedule of all ranks as a document; ValueError if it depends on lengths that the caller gives."""
    rounds = rounds_of(algorithm, ranks, root, segments, hosts)
    parts = algorithm.parts(ranks, segments, hosts)
    return assembled(algorithm.primitive.name, algorithm.name, ranks, root, parts, algorithm.ordered, rounds)


def rounds_of(algorithm: Algorithm, ranks: int, root: int, segments: int, hosts: Hosts) -> list[list[Round]]:
    """Return the rounds of each rank; ValueError if they depend on lengths that the caller gives."""
    if algorithm.needs_counts:
        raise ValueError(f"{algorithm} sends counts of blocks first, which a document does not have")
    return [list(algorithm.schedule(rank, ranks, root, segments, hosts)) for rank in range(ranks)]


def assembled(
    primitive: str, name: str, ranks: int, root: int, parts: int, ordered: bool, rounds: Sequence[Sequence[Round]]
) -> dict[str, Any]:
    """Return the document of the rounds of all ranks."""
    return {
        "schedule": VERSION,
        "primitive": primitive,
        "algorithm": name,
        "ranks": ranks,
        "root": root,
        "parts": parts,
        "ordered": ordered,
        "rounds": [[[written_move(move) for move in moves] for moves in each] for each in rounds],
    }


def written_move(move: Move) -> dict[str, Any]:
    """Return a move as a document has it."""
    name = next(name for name, (kind, _) in FIELDS.items() if type(move) is kind)
    if isinstance(move, PEERS):
        first, *rest = [*map(_listed, move.blocks)], *(value for value in move if value is not move.blocks)
    else:
        first, rest = _listed(move[0]), [_listed(move[1]), *move[2:]]
    return dict(zip((name, *FIELDS[name][1]), (first, *rest)))


def _listed(block: Block) -> Any:
    return list(block) if isinstance(block, tuple) else block


def text_of(document: dict[str, Any]) -> str:
    """Return a document as text, with a line for each round."""
    rounds = ",\n  ".join("[" + ",\n   ".join(json.dumps(moves) for moves in rank) + "]" for rank in document["rounds"])
    head = ",\n ".join(f"{json.dumps(name)}: {json.dumps(document[name])}" for name in document if name != "rounds")
    return "{" + head + ',\n "rounds": [\n  ' + rounds + "]}\n"


def algorithm_of(document: Any, name: str) -> Algorithm:
    """Return an algorithm that runs the schedules of a document.

    Raises
    ------
    ValueError
        If the document is not one of this form; the text names the field, or the rank, the round and the move.
    """
    given = _checked(document)
    ranks, root, parts = int(given["ranks"]), int(given["root"]), int(given["parts"])
    rounds = [
        [tuple(_read(move, ranks, rank, number) for move in moves) for number, moves in enumerate(each, 1)]
        for rank, each in enumerate(given["rounds"])
    ]

    found = algorithm_of_rounds(given["primitive"], name, rounds, parts, given["ordered"], root)
    found.generator.__doc__ = text_of(document)  # tells documents of one name apart, see `own_digest`
    return found


def algorithm_of_rounds(
    primitive: str, name: str, rounds: Sequence[Sequence[Round]], parts: int, ordered: bool, root: int = 0
) -> Algorithm:
    """Return an algorithm that runs these rounds of each rank."""
    kind, ranks = PRIMITIVES[primitive], len(rounds)

    def generator(rank: int, size: int, root: int = root) -> Schedule:
        if (size, root) != only:
            wanted, found = (
                f"{p} rank{'s' * (p != 1)}" + f" and root {r}" * kind.rooted for p, r in (only, (size, root))
            )
            raise ValueError(f"{name} is a schedule for {wanted}, not for {found}")
        yield from rounds[rank]

    def cut(size: int, segments: int, hosts: Hosts) -> int:
        return parts

    only = ranks, root
    parameters = ("rank", "size", *(["root"] if kind.rooted else []))
    return Algorithm(kind, name, generator, cut, ordered, parameters, only=only)


def _checked(document: Any) -> dict[str, Any]:
    """Return a document whose fields have the right types and ranges; raise ValueError for another one."""
    if not isinstance(document, dict) or document.get("schedule") != VERSION:
        raise ValueError(f'it is not an object with "schedule": {VERSION}')
    checks: dict[str, tuple[Callable[[Any], bool], str]] = {
        "primitive": (lambda value: isinstance(value, str) and value in PRIMITIVES, f"one of {', '.join(PRIMITIVES)}"),
        "ranks": (lambda value: _is_number(value, 1), "a number of at least 1"),
        "root": (lambda value: _is_number(value, 0) and value < document["ranks"], "one of the ranks"),
        "parts": (lambda value: _is_number(value, 1), "a number of at least 1"),
        "ordered": (lambda value: isinstance(value, bool), "true or false"),
        "rounds": (lambda value: _is_rounds(value, document["ranks"]), "a list of lists of rounds, one for each rank"),
    }
    for field, (valid, what) in checks.items():
        if field not in document:
            raise ValueError(f'"{field}" is missing')
        if not valid(document[field]):
            shown = "" if field == "rounds" else f": {json.dumps(document[field])}"
            raise ValueError(f'"{field}"{shown} is not {what}')
    primitive = PRIMITIVES[document["primitive"]]
    if document["parts"] > (most := max(MOST_PARTS, document["ranks"] ** 2)):
        raise ValueError(f'"parts": {document["parts"]} is more than {most}')
    if not primitive.cuts and document["parts"] != document["ranks"]:
        raise ValueError(f'"parts": {document["parts"]} is not the number of ranks, as {primitive.name} needs')
    return document


def _is_number(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_rounds(value: Any, ranks: int) -> bool:
    def are_lists(values: Any) -> bool:
        return isinstance(values, list) and all(isinstance(each, list) for each in values)

    return are_lists(value) and len(value) == ranks and all(map(are_lists, value))


def _read(move: Any, ranks: int, rank: int, number: int) -> Move:
    """Return a move; raise ValueError that names the rank and the round."""
    try:
        return _move(move, ranks)
    except ValueError as error:
        raise ValueError(f"rank {rank}, round {number}: {json.dumps(move)}: {error}") from None


def _move(move: Any, ranks: int) -> Move:
    names = [name for name in FIELDS if isinstance(move, dict) and name in move]
    if len(names) != 1:
        raise ValueError(f"a move has one of {', '.join(FIELDS)}")
    kind, others = FIELDS[names[0]]
    if missing := {names[0], *others} ^ move.keys():
        raise ValueError(f"{min(missing)!r} is missing, or does not belong there")
    if move.get("order", AFTER) not in (BEFORE, AFTER):
        raise ValueError(f"the order is {BEFORE} or {AFTER}")
    first, second, *order = (move[field] for field in (names[0], *others))
    if kind not in PEERS:
        return kind(_block(first), _block(second), *order)  # type: ignore[no-any-return]
    if not _is_number(second, 0) or second >= ranks:
        raise ValueError(f"{second!r} is not one of {ranks} ranks")
    if not isinstance(first, list):
        raise ValueError("blocks are a list")
    return kind(second, [*map(_block, first)], *order)


def _block(given: Any) -> Block:
    if isinstance(given, list) and len(given) > 1 and all(_is_number(each, 0) for each in given):
        return tuple(given)
    if not _is_number(given, 0):
        raise ValueError(f"{json.dumps(given)} is not a block: a number, or a list of numbers")
    return int(given)
