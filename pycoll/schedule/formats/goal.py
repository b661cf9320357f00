"""Schedules in GOAL, the input of LogGOPSim and ATLAHS.

GOAL has messages and times, but no blocks: a combination of n bytes becomes a calculation of n*gamma nanoseconds.  All
moves of a round require the moves of the round before.  Of a file in GOAL, only the messages can be proved.

References
----------
T. Hoefler, C. Siebert, A. Lumsdaine: Group Operation Assembly Language: A Flexible Way to Express Collective
Communication.  ICPP 2009.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NoReturn

from ..moves import Recv, Reduce, Send
from .messages import Node, check_messages
from .operations import NoAlgorithm
from .plan import ExportedSchedule, GraphTask

_LABEL = "[a-zA-Z][a-zA-Z0-9_]*"
_OPERATION = re.compile(
    rf"(?:({_LABEL})\s*:\s*)?(?:calc\s+\d+|(send|recv)\s+(\d+)b\s+(?:to|from)\s+(-?\d+)(?:\s+tag\s+(-?\d+))?)"
    r"(?:\s+(?:cpu|nic)\s+\d+)*"
)
_NEEDS = re.compile(rf"({_LABEL})\s+(i?requires)\s+({_LABEL})")


def write(plan: ExportedSchedule) -> str:
    """Return the text of a schedule."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: ExportedSchedule) -> Iterator[str]:
    yield f"num_ranks {plan.ranks}"
    for rank in range(plan.ranks):
        yield f"\nrank {rank} {{"
        for number, task in enumerate(plan.tasks(rank, copies=False), 1):
            yield f"l{number}: {_operation(plan, task)}"
            yield from (f"l{number} requires l{each + 1}" for each in task.after)
        yield "}"


def _operation(plan: ExportedSchedule, task: GraphTask) -> str:
    move = task.move
    if task.is_message and isinstance(move, Send):
        return f"send {plan.nbytes(move.blocks)}b to {move.to} tag 0"
    if task.is_message and isinstance(move, (Recv, Reduce)):
        return f"recv {plan.nbytes(move.blocks)}b from {move.source} tag 0"
    return f"calc {plan.seconds(move) * 1e9:.0f}"


def check(text: str) -> NoReturn:
    """Raise `NoAlgorithm` if all messages of a schedule match, and ValueError if not, or if there is a deadlock."""
    nodes, ranks = _nodes(text)
    found = check_messages(nodes, ranks)
    matched = f"all {found} messages between {ranks} ranks match, and all operations end"
    raise NoAlgorithm(f"{matched}; GOAL has no blocks, so nothing is known about the result")


def _nodes(text: str) -> tuple[list[Node], int]:
    text = re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
    nodes: list[Node] = []
    labels: dict[str, int] = {}
    ranks, rank = 0, -1
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("//")[0].strip()
        location = f"line {number}"
        if match := re.fullmatch(r"num_ranks\s+(\d+)", line):
            ranks = int(match[1])
        elif match := re.fullmatch(r"rank\s+(\d+)\s*\{", line):
            rank, labels = int(match[1]), {}
            if rank >= ranks or any(node.rank == rank for node in nodes):
                raise ValueError(f"{location}: rank {rank} is not one of {ranks} ranks, or has two schedules")
        elif line == "}":
            rank = -1
        elif line and rank < 0:
            raise ValueError(f"{location}: {line!r} belongs to no rank")
        elif match := _OPERATION.fullmatch(line):
            label, way, size, peer, tag = match.groups()
            if label:
                labels[label] = len(nodes)
            given = (way, int(peer), int(tag or 0), int(size)) if way else ()
            nodes.append(Node(rank, f"{location} ({line.partition(':')[2].strip() or line})", *given))
        elif match := _NEEDS.fullmatch(line):
            if missing := {match[1], match[3]} - labels.keys():
                raise ValueError(f"{location}: rank {rank} has no operation {min(missing)}")
            node = nodes[labels[match[1]]]
            (node.after if match[2] == "requires" else node.after_start).append(labels[match[3]])
        elif line:
            raise ValueError(f"{location}: {line!r} is not a line of GOAL")
    if ranks < 1 or rank >= 0:
        raise ValueError("num_ranks is missing" if ranks < 1 else f"the schedule of rank {rank} has no end")
    return nodes, ranks
