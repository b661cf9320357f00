"""Graphs of messages without blocks, as in files of GOAL and Chakra: whether all messages match, and all nodes end.

Messages are not buffered: a send and its receive end when both have started.  Between two ranks, messages with one tag
match in the order in which they start, and end in this order.  A node starts when it waits for nothing more; those that
can start together do so in the order of the file.  The order of messages with one tag must not depend on time: whatever
a message waits for happens before the next one can start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .operations import Instruction, happening_before, in_order

Way = tuple[int, int, int]  # a sender, a receiver and a tag


@dataclass
class Node:
    """A node of the graph of a rank; `location` tells where it is in the file."""

    rank: int
    location: str
    way: str = ""  # send or recv
    peer: int = -1
    tag: int = 0
    size: int = 0
    after: list[int] = field(default_factory=list)  # the nodes that must have ended, by number
    after_start: list[int] = field(default_factory=list)  # the nodes that must have started


def check_messages(nodes: Sequence[Node], ranks: int) -> int:
    """Return the number of messages; raise ValueError if one has no partner, or if there is a deadlock."""
    starts = [Instruction(each.rank, each.location) for each in nodes]
    ends = [Instruction(each.rank, each.location, after=[number]) for number, each in enumerate(nodes)]
    for number, node in enumerate(nodes):
        starts[number].after += [each + len(nodes) for each in node.after] + node.after_start
    sends, receives = (_by_way(nodes, ranks, way) for way in ("send", "recv"))
    pairs = [pair for way in sorted({*sends, *receives}) for pair in _matched(nodes, way, sends[way], receives[way])]
    for one, other in pairs:
        ends[one].after.append(other)
        ends[other].after.append(one)
    in_turn = [pair for numbers in (*sends.values(), *receives.values()) for pair in pairwise(numbers)]
    for one, other in in_turn:
        ends[other].after.append(one + len(nodes))
    before = happening_before([*starts, *ends], in_order([*starts, *ends]))
    for one, other in in_turn:
        if not all(before[other] >> needed & 1 for needed in starts[one].after):
            both = f"rank {nodes[one].rank}, {nodes[one].location} and {nodes[other].location}"
            raise ValueError(f"race: {both} have one tag, and it is not known which of them starts first")
    return len(pairs)


def _by_way(nodes: Sequence[Node], ranks: int, way: str) -> dict[Way, list[int]]:
    """Return the sends or receives by sender, receiver and tag."""
    found: dict[Way, list[int]] = defaultdict(list)
    for number, node in enumerate(nodes):
        if node.way == way:
            if not 0 <= node.peer < ranks or node.peer == node.rank:
                raise ValueError(f"rank {node.rank}, {node.location}: {node.peer} is not another one of {ranks} ranks")
            source, to = (node.rank, node.peer) if way == "send" else (node.peer, node.rank)
            found[source, to, node.tag].append(number)
    return found


def _matched(nodes: Sequence[Node], way: Way, sends: list[int], receives: list[int]) -> list[tuple[int, int]]:
    if len(sends) != len(receives):
        number = min(len(sends), len(receives))
        here, peer, verb = (sends, way[1], "receives") if len(sends) > number else (receives, way[0], "sends")
        node = nodes[here[number]]
        raise ValueError(f"rank {node.rank}, {node.location}: a message that rank {peer} never {verb}")
    for pair in zip(sends, receives):
        one, other = (f"rank {nodes[each].rank}, {nodes[each].location}: {nodes[each].size} bytes" for each in pair)
        if nodes[pair[0]].size != nodes[pair[1]].size:
            raise ValueError(f"a message has two sizes: {one}; {other}")
    return [*zip(sends, receives)]
