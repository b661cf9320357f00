"""Execution traces of Chakra: one file for each rank, ``name.RANK.et``, in the encoding of Protocol Buffers.

A node is a send, a receive or a computation, and depends on others.  Chakra has no blocks, but nodes have attributes of
any name.  `write` adds three: ``pycoll_schedule`` in the metadata, ``pycoll_round`` and ``pycoll_move`` in the nodes.
With them, `read` returns the document, after it has compared them with the nodes.  Of other traces, only the messages
can be proved.

References
----------
S. Sridharan et al.: Chakra: Advancing Performance Benchmarking and Co-design using Standardized Execution Traces.
arXiv:2305.14516, 2023.  https://github.com/mlcommons/chakra
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..document import written_move
from ..moves import Recv, Reduce, Send
from .messages import Node, check_messages
from .operations import NoAlgorithm
from .plan import ExportedSchedule
from .protobuf import decoded, encoded, number, numbers, read_bytes, text

COMPUTE, SEND, RECEIVE = 4, 5, 6  # the types of nodes
WAYS = {SEND: ("send", "comm_dst"), RECEIVE: ("recv", "comm_src")}
ID, NAME, TYPE, CONTROL, DATA, MICROS, ATTRIBUTES = 1, 2, 3, 4, 5, 7, 10  # the fields of a node
NUMBERS, INT64, BOOL, TEXT = range(3, 27), 9, 27, 29  # the fields of an attribute, by the type of its value
PEERS = {"send": (SEND, "to"), "receive": (RECEIVE, "from"), "reduce": (RECEIVE, "from")}  # the node of a move
Json = dict[str, Any]


def write(plan: ExportedSchedule) -> list[bytes]:
    """Return the trace of each rank."""
    head = {name: value for name, value in plan.document().items() if name != "rounds"}
    start = encoded(1, "0.0.4") + _attribute(2, "pycoll_schedule", json.dumps(head))
    return [_message(start) + b"".join(map(_message, _nodes(plan, rank))) for rank in range(plan.ranks)]


def _message(data: bytes) -> bytes:
    return number(len(data)) + data


def _attribute(field: int, name: str, value: int | str) -> bytes:
    kind = TEXT if isinstance(value, str) else BOOL if isinstance(value, bool) else INT64
    return encoded(field, encoded(1, name) + encoded(kind, value))


def _nodes(plan: ExportedSchedule, rank: int) -> Iterator[bytes]:
    for count, (at, move, is_message, after) in enumerate(plan.tasks(rank, copies=True)):
        attributes: Json = {}
        kind, micros = COMPUTE, round(plan.seconds(move) * 1e6)
        if is_message and isinstance(move, (Send, Recv, Reduce)):
            kind, ends = (SEND, (rank, move.to)) if isinstance(move, Send) else (RECEIVE, (move.source, rank))
            micros, attributes["comm_size"] = 0, plan.nbytes(move.blocks)
            attributes |= {"comm_src": ends[0], "comm_dst": ends[1], "comm_tag": 0}
        if is_message or not isinstance(move, Reduce):  # the first node of the move
            attributes |= {"pycoll_round": at, "pycoll_move": json.dumps(written_move(move))}
        yield _node(count, kind, after, attributes, micros)


def _node(count: int, kind: int, needed: Sequence[int], attributes: Json, micros: int) -> bytes:
    name = {SEND: "send", RECEIVE: "receive", COMPUTE: "compute"}[kind]
    fields = encoded(ID, count) + encoded(NAME, f"{name} {count}") + encoded(TYPE, kind)
    fields += encoded(DATA, b"".join(map(number, needed))) + encoded(MICROS, micros)
    return fields + b"".join(_attribute(ATTRIBUTES, *each) for each in {"is_cpu_op": False, **attributes}.items())


def files_of(file: Path) -> list[Path]:
    """Return the files of all ranks of a trace; `file` is one of them, or their name without a rank."""
    name = file.name.split(".")[0]
    found = sorted(file.parent.glob(f"{name}.*.et"), key=lambda each: (len(each.name), each.name)) or [file]
    if [each.name for each in found] != [f"{name}.{rank}.et" for rank in range(len(found))]:
        raise ValueError(f"the files of the ranks are not {name}.0.et, {name}.1.et, and so on")
    return found


def read(traces: Sequence[bytes]) -> Json:
    """Return the document of the traces of all ranks; raise `NoAlgorithm` if they have no blocks."""
    nodes: list[Node] = []
    moves: list[tuple[int, Json]] = []  # the attributes of each node
    heads = set()
    for rank, data in enumerate(traces):
        messages = _messages(data, rank)
        heads.add(_attributes(messages[0], 2).get("pycoll_schedule"))
        _add_nodes(nodes, moves, rank, messages[1:])
    found = check_messages(nodes, len(traces))
    if heads == {None}:
        matched = f"all {found} messages between {len(traces)} ranks match, and all nodes end"
        raise NoAlgorithm(f"{matched}; the nodes have no blocks, so nothing is known about the result")
    head, *others = heads
    if others or not isinstance(head, str):
        raise ValueError("the traces of the ranks have different attributes pycoll_schedule")
    document: Json = json.loads(head)
    if not isinstance(document, dict) or document.get("ranks") != len(traces):
        raise ValueError(f"{len(traces)} traces are not those of all ranks: {head}")
    return document | {"rounds": [_rounds(nodes, moves, rank) for rank in range(len(traces))]}


def _messages(data: bytes, rank: int) -> list[bytes]:
    data, at = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, 0
    found: list[bytes] = []
    try:
        while at < len(data):
            message, at = read_bytes(data, at)
            found.append(message)
    except ValueError as error:
        raise ValueError(f"rank {rank}, message {len(found)}: {error}") from None
    if not found:
        raise ValueError(f"the trace of rank {rank} is empty")
    return found


def _attributes(message: bytes, field: int) -> Json:
    found: Json = {}
    for data in decoded(message)[field]:
        fields = decoded(data) if isinstance(data, bytes) else {}
        value = [values[-1] for each, values in fields.items() if each in NUMBERS or each == BOOL]
        found[text(fields.get(1, []))] = text(fields[TEXT]) if TEXT in fields else value[-1] if value else None
    return found


def _add_nodes(nodes: list[Node], moves: list[tuple[int, Json]], rank: int, messages: Sequence[bytes]) -> None:
    first, ids = len(nodes), {}
    for message in messages:
        fields, attributes = decoded(message), _attributes(message, ATTRIBUTES)
        key, kind = next(numbers(fields[ID]), 0), next(numbers(fields[TYPE]), 0)
        location = f"node {key} ({text(fields[NAME])})"
        if key in ids:
            raise ValueError(f"rank {rank} has two nodes {key}")
        ids[key] = len(nodes)
        node = Node(rank, location, after=[*numbers(fields[CONTROL]), *numbers(fields[DATA])])
        if kind in WAYS:
            node.way, peer = WAYS[kind]
            missing = [name for name in (peer, "comm_size") if not isinstance(attributes.get(name), int)]
            if missing:
                raise ValueError(f"rank {rank}, {location}: it has no attribute {missing[0]}")
            node.peer, node.size, node.tag = attributes[peer], attributes["comm_size"], attributes.get("comm_tag") or 0
        elif kind == 7:
            raise ValueError(f"rank {rank}, {location}: a collective has no messages that could be checked")
        nodes.append(node)
        moves.append((kind, attributes))
    for node in nodes[first:]:
        if unknown := {*node.after} - ids.keys():
            raise ValueError(f"rank {rank}, {node.location}: it depends on node {min(unknown)}, which does not exist")
        node.after = [ids[each] for each in node.after]


def _rounds(nodes: Sequence[Node], moves: Sequence[tuple[int, Json]], rank: int) -> list[list[Json]]:
    """Return the rounds of a rank; ValueError if a node has another move, or does not wait for the round before."""
    rounds: list[list[Json]] = []
    before: set[int] = set()
    ends: set[int] = set()
    last = -1  # the node with the last move
    for here, (node, (kind, attributes)) in enumerate(zip(nodes, moves)):
        if node.rank != rank:
            continue
        where = f"rank {rank}, {node.location}"
        if "pycoll_move" not in attributes:
            if kind != COMPUTE or node.after != [last] or "reduce" not in rounds[-1][-1]:
                raise ValueError(f"{where}: it has no attribute pycoll_move")
            ends = ends - {last} | {here}
            continue
        if attributes.get("pycoll_round") == len(rounds):
            rounds.append([])
            before, ends = ends or before, set()
        elif attributes.get("pycoll_round") != len(rounds) - 1:
            raise ValueError(f"{where}: pycoll_round is {attributes.get('pycoll_round')} after round {len(rounds) - 1}")
        move = json.loads(str(attributes["pycoll_move"]))
        found = [PEERS[name] for name in PEERS if isinstance(move, dict) and name in move] or [(COMPUTE, "")]
        if (kind, node.peer) != (found[0][0], move.get(found[0][1], -1) if isinstance(move, dict) else None):
            raise ValueError(f"{where}: its move is {attributes['pycoll_move']}")
        if {*node.after} != before:
            raise ValueError(f"{where}: it does not depend on all nodes of the round before, and on no others")
        rounds[-1].append(move)
        ends.add(here)
        last = here
    return rounds
