"""Graphs of messages without blocks, as in files of GOAL and Chakra: whether all messages match, and all nodes end.

Messages are not buffered: a send and its receive end together, when both have started.  Between two ranks, messages
with one tag match in the order of the file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from .operations import Operation, in_order


class OnlyMessages(ValueError):
    """Raised instead of a result for a file without blocks, of which only the messages are proved."""


@dataclass
class Node:
    """A node of the graph of a rank; `place` tells where it is in the file."""

    rank: int
    place: str
    way: str = ""  # send or recv
    peer: int = -1
    tag: int = 0
    size: int = 0
    after: list[int] = field(default_factory=list)  # the nodes that must have ended, by number
    after_start: list[int] = field(default_factory=list)  # the nodes that must have started


def check_messages(nodes: Sequence[Node], ranks: int) -> int:
    """Return the number of messages; raise ValueError if one has no partner, or if there is a deadlock."""
    starts = [Operation(each.rank, each.place) for each in nodes]
    ends = [Operation(each.rank, each.place, after=[number]) for number, each in enumerate(nodes)]
    for number, node in enumerate(nodes):
        starts[number].after += [each + len(nodes) for each in node.after] + node.after_start
    pairs = _pairs(nodes, ranks)
    for one, other in pairs:
        ends[one].after.append(other)
        ends[other].after.append(one)
    in_order([*starts, *ends])
    return len(pairs)


def _pairs(nodes: Sequence[Node], ranks: int) -> list[tuple[int, int]]:
    sends: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    receives: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for number, node in enumerate(nodes):
        if node.way and (not 0 <= node.peer < ranks or node.peer == node.rank):
            raise ValueError(f"rank {node.rank}, {node.place}: {node.peer} is not another one of {ranks} ranks")
        if node.way == "send":
            sends[node.rank, node.peer, node.tag].append(number)
        elif node.way == "recv":
            receives[node.peer, node.rank, node.tag].append(number)
    pairs: list[tuple[int, int]] = []
    for way in sorted({*sends, *receives}):
        if len(sends[way]) != len(receives[way]):
            more, what = max((sends[way], "receives"), (receives[way], "sends"), key=lambda each: len(each[0]))
            node = nodes[more[min(len(sends[way]), len(receives[way]))]]
            peer = way[1] if what == "receives" else way[0]
            raise ValueError(f"rank {node.rank}, {node.place}: a message that rank {peer} never {what}")
        pairs += zip(sends[way], receives[way])
    for one, other in pairs:
        if nodes[one].size != nodes[other].size:
            both = [f"rank {nodes[each].rank}, {nodes[each].place}: {nodes[each].size} bytes" for each in (one, other)]
            raise ValueError(f"a message has two sizes: {both[0]}; {both[1]}")
    return pairs
