"""Algorithms of MSCCL: XML files, as msccl-tools writes them, and the runtime of MSCCL reads them.

A thread block of a GPU has steps, and at most one GPU to which it sends, and one from which it receives.  A step may
wait for a step of another thread block.  A send ends when its data is in a queue of the connection, which has room for
`ROOM` sends.  These are the steps; the fused ones receive and send without storing what they need not store:

=======  =================================================
``s``    send src
``r``    dst = received
``rcs``  dst = received; send dst
``rrc``  dst = src + received
``rrs``  send src + received
``rrcs`` dst = src + received; send dst
``cpy``  dst = src
``re``   dst = dst + src
``nop``  only wait
=======  =================================================

References
----------
M. Cowan, S. Maleki, M. Musuvathi, O. Saarikivi, Y. Xiong: MSCCLang: Microsoft Collective Communication Language.
ASPLOS 2023.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from ..moves import Combine, Copy, Recv, Reduce, Send
from .cells import INPUT, OUTPUT, SCRATCH, Buffers, Cell, buffers_of
from .operations import Assignment, Operation
from .plan import Places, Plan, runs

ROOM = {"Simple": 2}  # of 8 slots of a queue, a send takes 4; with the other protocols, one
SENDS, RECEIVES = ("s", "rcs", "rrs", "rrcs"), ("r", "rcs", "rrc", "rrs", "rrcs")
TYPES = ("s", "r", "rcs", "rrc", "rrs", "rrcs", "cpy", "re", "nop")
SIZES = {INPUT: "i_chunks", OUTPUT: "o_chunks", SCRATCH: "s_chunks"}
MOST = 1 << 20  # chunks of a message
Queues = list[list[tuple[int, int]]]


@dataclass
class _Step:
    kind: str
    source: Cell | None
    to: Cell | None
    count: int
    needs: tuple[int, int] | None = None  # thread block and step
    is_needed: bool = False


@dataclass
class _Block:
    send: int = -1
    recv: int = -1
    steps: list[_Step] = field(default_factory=list)
    known: dict[int, int] = field(default_factory=dict)  # the last step of other blocks that it has waited for


class _Gpu:
    """The thread blocks of a rank: one for each partner and direction, and one for local moves."""

    def __init__(self) -> None:
        self.blocks: list[_Block] = []
        self.written: dict[Cell, tuple[int, int]] = {}
        self.read: dict[Cell, list[tuple[int, int]]] = defaultdict(list)

    def add(self, step: _Step, send: int = -1, recv: int = -1) -> None:
        """Add a step, which waits for the steps that have accessed its cells."""
        found = [number for number, each in enumerate(self.blocks) if (each.send, each.recv) == (send, recv)]
        if not found:
            self.blocks.append(_Block(send, recv))
        number = found[0] if found else len(self.blocks) - 1
        block = self.blocks[number]
        reads = _range(step.source, step.count) + (_range(step.to, step.count) if step.kind == "re" else [])
        writes = _range(step.to, step.count)
        last: dict[int, int] = {}
        for cell in {*reads, *writes}:
            writer = [self.written[cell]] if cell in self.written else []
            for other, at in [*writer, *(self.read[cell] if cell in writes else ())]:
                if other != number and at > block.known.get(other, -1):
                    last[other] = max(last.get(other, -1), at)
        block.known |= last
        *extra, step.needs = [*last.items()] or [None]
        block.steps += [_Step("nop", None, None, 0, each) for each in extra]
        block.steps.append(step)
        for other, at in last.items():
            self.blocks[other].steps[at].is_needed = True
        here = number, len(block.steps) - 1
        for cell in reads:
            self.read[cell].append(here)
        for cell in writes:
            self.written[cell], self.read[cell] = here, []


def _range(cell: Cell | None, count: int) -> list[Cell]:
    return [cell._replace(index=cell.index + each) for each in range(count)] if cell else []


def write(plan: Plan) -> str:
    """Return the XML text of an algorithm."""
    places = Places(plan, "MSCCL")
    gpus = [_gpu(plan, places, rank) for rank in range(plan.ranks)]
    sizes = {"i_chunks": places.size(INPUT), "o_chunks": places.size(OUTPUT)}
    name, coll = plan.algorithm.name, plan.algorithm.primitive.name
    fields = {"name": name, "proto": "Simple", "nchannels": 1, "nchunksperloop": max(sizes.values())}
    fields |= {"ngpus": plan.ranks, "coll": coll, "inplace": int(places.buffers.in_place)}
    root = ElementTree.Element("algo", _texts(fields))
    for rank, gpu in enumerate(gpus):
        element = ElementTree.SubElement(root, "gpu", _texts({"id": rank, **sizes, "s_chunks": places.scratch[rank]}))
        for number, block in enumerate(gpu.blocks):
            attributes = {"id": number, "send": block.send, "recv": block.recv, "chan": 0}
            tb = ElementTree.SubElement(element, "tb", _texts(attributes))
            for at, step in enumerate(block.steps):
                ElementTree.SubElement(tb, "step", _texts(_attributes(at, step)))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _texts(values: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _attributes(at: int, step: _Step) -> dict[str, Any]:
    block, other = step.needs or (-1, -1)
    source, to = step.source or Cell(0, INPUT, -1), step.to or Cell(0, OUTPUT, -1)
    found = {"s": at, "type": step.kind, "srcbuf": source.buffer, "srcoff": source.index, "dstbuf": to.buffer}
    return found | {"dstoff": to.index, "cnt": step.count, "depid": block, "deps": other, "hasdep": int(step.is_needed)}


def _gpu(plan: Plan, places: Places, rank: int) -> _Gpu:
    gpu = _Gpu()
    for moves in plan.rounds[rank]:
        for move in sorted(moves, key=lambda move: not isinstance(move, Send)):
            match move:
                case Send(peer, blocks):
                    pairs = [(places.cell(rank, block), places.cell(peer, block)) for block in blocks]
                    for cell, _, count in runs(pairs):
                        gpu.add(_Step("s", cell, None, count), send=peer)
                case Recv(peer, blocks) | Reduce(peer, blocks):
                    pairs = [(places.cell(peer, block), places.cell(rank, block)) for block in blocks]
                    for _, cell, count in runs(pairs):
                        reduces = isinstance(move, Reduce)
                        gpu.add(_Step("rrc" if reduces else "r", cell if reduces else None, cell, count), recv=peer)
                case Copy(block, to):
                    gpu.add(_Step("cpy", places.cell(rank, block), places.cell(rank, to), 1))
                case Combine(block, into):
                    gpu.add(_Step("re", places.cell(rank, block), places.cell(rank, into), 1))
    for source, cell in places.last_copies(rank):
        gpu.add(_Step("cpy", source, cell, 1))
    return gpu


class _Reader:
    """The operations of a file."""

    def __init__(self, root: ElementTree.Element) -> None:
        self.gpus = sorted(root.findall("gpu"), key=lambda gpu: _number(gpu, "id"))
        ranks = _number(root, "ngpus")
        if [_number(gpu, "id") for gpu in self.gpus] != [*range(ranks)] or ranks < 1:
            raise ValueError(f"the ids of the elements gpu are not 0 to {ranks - 1}")
        counts = [_number(gpu, name) for gpu in self.gpus for name in ("i_chunks", "o_chunks")]
        in_place = _number(root, "inplace", 0) == 1
        self.buffers = buffers_of(root.get("coll", ""), ranks, counts, in_place)
        self.room = ROOM.get(root.get("proto", "Simple"), 8)
        self.operations: list[Operation] = []
        self.numbers: dict[tuple[int, int, int], int] = {}  # by rank, thread block and step
        self.marks: dict[tuple[int, int], list[int]] = {}  # the steps that let others wait for them
        self.sends: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
        self.receives: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)

    def read(self) -> tuple[list[Operation], Queues]:
        for rank, gpu in enumerate(self.gpus):
            for tb in gpu.findall("tb"):
                self.read_block(rank, tb)
        for rank, gpu in enumerate(self.gpus):
            for tb in gpu.findall("tb"):
                self.read_needs(rank, tb)
        return self.operations, list(self.match())

    def read_block(self, rank: int, tb: ElementTree.Element) -> None:
        number, channel = _number(tb, "id"), _number(tb, "chan", 0)
        if (rank, number) in self.marks:
            raise ValueError(f"rank {rank} has two thread blocks {number}")
        steps = sorted(tb.findall("step"), key=lambda step: _number(step, "s"))
        if [_number(step, "s") for step in steps] != [*range(len(steps))]:
            raise ValueError(f"rank {rank}, thread block {number}: the steps are not 0 to {len(steps) - 1}")
        self.marks[rank, number] = [at for at, step in enumerate(steps) if step.get("hasdep") == "1"]
        for at, step in enumerate(steps):
            self.numbers[rank, number, at] = here = len(self.operations)
            operation = Operation(rank, f"thread block {number}, step {at} ({step.get('type')})")
            operation.after += [self.numbers[rank, number, at - 1]] if at else []
            self.operations.append(operation)
            kind, count = step.get("type"), _number(step, "cnt", 1)
            if kind not in TYPES:
                raise ValueError(f"{operation}: the type is not one of {', '.join(TYPES)}")
            if kind in RECEIVES:
                self.receives[self.peer(tb, "recv", operation), rank, channel].append((here, count))
            if kind in SENDS:
                self.sends[rank, self.peer(tb, "send", operation), channel].append((here, count))
            operation.assignments = list(self.assignments(kind, step, here, count))
            if operation.assignments:
                first = operation.assignments[0]
                cell = next(cell for cell in (*first.to, *first.of) if cell.buffer in SIZES)
                chunks = f"{cell}" if count == 1 else f"{count} chunks from {cell}"
                operation.place = f"thread block {number}, step {at} ({kind} {chunks})"

    def peer(self, tb: ElementTree.Element, way: str, operation: Operation) -> int:
        peer = _number(tb, way, -1)
        if not 0 <= peer < self.buffers.ranks or peer == operation.rank:
            raise ValueError(f"{operation}: {way}={peer} of its thread block is not another rank")
        return peer

    def assignments(self, kind: str, step: ElementTree.Element, here: int, count: int) -> Iterator[Assignment]:
        operation = self.operations[here]
        if kind == "nop":
            return
        if count < 1:
            raise ValueError(f"{operation}: cnt={count} is less than 1")
        for each in range(count):
            sent, received = Cell(operation.rank, "sent", here * MOST + each), Cell(0, "received", each)
            source = self.cell(step, "src", each, operation) if kind in ("s", "rrc", "rrs", "rrcs", "cpy", "re") else None
            to = self.cell(step, "dst", each, operation) if kind not in ("s", "rrs") else None
            of = {"re": (to, source), "r": (received,), "rcs": (received,), "s": (source,), "cpy": (source,)}
            cells = of.get(kind, (source, received))
            targets = ([to] if to else []) + ([sent] if kind in SENDS else [])
            yield Assignment(tuple(targets), cells)  # type: ignore[arg-type]

    def cell(self, step: ElementTree.Element, way: str, each: int, operation: Operation) -> Cell:
        buffer, index = step.get(f"{way}buf"), _number(step, f"{way}off") + each
        if buffer not in SIZES:
            raise ValueError(f"{operation}: {way}buf={buffer!r} is not one of {', '.join(SIZES)}")
        size = _number(self.gpus[operation.rank], SIZES[buffer])
        if not 0 <= index < size:
            raise ValueError(f"{operation}: {buffer}[{index}] is outside of the {size} chunks of this buffer")
        return self.buffers.cell(operation.rank, buffer, index)

    def read_needs(self, rank: int, tb: ElementTree.Element) -> None:
        number = _number(tb, "id")
        for step in tb.findall("step"):
            other, at = _number(step, "depid", -1), _number(step, "deps", -1)
            if other < 0:
                continue
            here = self.operations[self.numbers[rank, number, _number(step, "s")]]
            found = [mark for mark in self.marks.get((rank, other), ()) if mark >= at]
            if found:
                here.after.append(self.numbers[rank, other, found[0]])
            else:
                here.lacks = f"step {at} of thread block {other}, which sets no flag (hasdep)"

    def match(self) -> Iterator[list[tuple[int, int]]]:
        """Give each receive its message; yield the sends of each queue, and the receives that make room for them."""
        for way in {*self.sends, *self.receives}:
            sends, receives = self.sends[way], self.receives[way]
            for kind, steps in (("send", sends), ("receive", receives)):
                blocks = {self.operations[here].place.partition(",")[0] for here, _ in steps}
                if len(blocks) > 1:
                    where = f"rank {way[0 if kind == 'send' else 1]}: {' and '.join(sorted(blocks))}"
                    raise ValueError(f"{where} both {kind} between ranks {way[0]} and {way[1]} on channel {way[2]}")
            for number, (here, count) in enumerate(receives):
                operation = self.operations[here]
                if number >= len(sends):
                    operation.lacks = f"a message from rank {way[0]} on channel {way[2]}, which never comes"
                    continue
                sender, sent = sends[number]
                if count != sent:
                    raise ValueError(f"{operation} receives {count} chunks, and {self.operations[sender]} sends {sent}")
                operation.after.append(sender)
                operation.assignments = [_received(each, way[0], sender) for each in operation.assignments]
            if len(sends) > len(receives):
                unread = self.operations[sends[len(receives)][0]]
                raise ValueError(f"{unread} sends a message that rank {way[1]} never receives")
            yield [(sends[at + self.room][0], receives[at][0]) for at in range(len(sends) - self.room)]



def _received(assignment: Assignment, source: int, sender: int) -> Assignment:
    cells = (Cell(source, "sent", sender * MOST + cell.index) if cell.buffer == "received" else cell for cell in assignment.of)
    return assignment._replace(of=tuple(cells))


def _number(element: ElementTree.Element, name: str, default: int | None = None) -> int:
    text = element.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(str(text))
    except ValueError:
        raise ValueError(f"{name}={text!r} of an element {element.tag} is not a number") from None


def read(text: str) -> tuple[Buffers, list[Operation], Queues]:
    """Return the buffers and the operations of an XML text."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"it is not XML: {error}") from None
    if root.tag != "algo":
        raise ValueError(f"the first element is {root.tag}, not algo")
    reader = _Reader(root)
    return reader.buffers, *reader.read()
