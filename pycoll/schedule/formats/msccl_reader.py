"""Reading algorithms of MSCCL; see `pycoll.schedule.formats.msccl`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from xml.etree import ElementTree

from .cells import INPUT, OUTPUT, SCRATCH, Buffers, Cell, buffers_of
from .operations import Assignment, Instruction, Queues

ROOM = {"Simple": 2, "LL": 8, "LL128": 8}  # sends in a queue of 8 slots, of which a send takes 4, 1 and 1
SENDS, RECEIVES = ("s", "rcs", "rrs", "rrcs"), ("r", "rcs", "rrc", "rrs", "rrcs")
TYPES = ("s", "r", "rcs", "rrc", "rrs", "rrcs", "cpy", "re", "nop")
SIZES = {INPUT: "i_chunks", OUTPUT: "o_chunks", SCRATCH: "s_chunks"}
RECEIVED = "received"  # the buffer of cells of a message that is not known yet
Element = ElementTree.Element
Way = tuple[int, int, int]  # a sender, a receiver and a channel


class _Reader:
    """The operations of a file."""

    def __init__(self, root: Element) -> None:
        self.gpus = sorted(root.findall("gpu"), key=lambda gpu: _number(gpu, "id"))
        ranks = _number(root, "ngpus")
        if not 1 <= ranks == len(self.gpus) or any(_number(gpu, "id") != n for n, gpu in enumerate(self.gpus)):
            raise ValueError(f"the ids of the elements gpu are not 0 to {ranks - 1}")
        counts = [_number(gpu, name) for gpu in self.gpus for name in ("i_chunks", "o_chunks")]
        in_place = _number(root, "inplace", 0) == 1
        self.buffers = buffers_of(root.get("coll", ""), ranks, counts, in_place)
        self.room = ROOM.get(root.get("proto", ""), min(ROOM.values()))
        self.operations: list[Instruction] = []
        self.numbers: dict[tuple[int, int, int], int] = {}  # by rank, thread block and step
        self.marks: dict[tuple[int, int], list[int]] = {}  # the steps that let others wait for them
        self.sends: dict[Way, list[tuple[int, int]]] = defaultdict(list)
        self.receives: dict[Way, list[tuple[int, int]]] = defaultdict(list)

    def read(self) -> tuple[list[Instruction], Queues]:
        for rank, gpu in enumerate(self.gpus):
            for tb in gpu.findall("tb"):
                self.read_block(rank, tb)
        for rank, gpu in enumerate(self.gpus):
            for tb in gpu.findall("tb"):
                self.read_needs(rank, tb)
        return self.operations, list(self.match())

    def read_block(self, rank: int, tb: Element) -> None:
        number, channel = _number(tb, "id"), _number(tb, "chan", 0)
        if (rank, number) in self.marks:
            raise ValueError(f"rank {rank} has two thread blocks {number}")
        steps = sorted(tb.findall("step"), key=lambda step: _number(step, "s"))
        if [_number(step, "s") for step in steps] != [*range(len(steps))]:
            raise ValueError(f"rank {rank}, thread block {number}: the steps are not 0 to {len(steps) - 1}")
        self.marks[rank, number] = [at for at, step in enumerate(steps) if step.get("hasdep") == "1"]
        for at, step in enumerate(steps):
            self.numbers[rank, number, at] = here = len(self.operations)
            operation = Instruction(rank, f"thread block {number}, step {at} ({step.get('type')})")
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
                operation.location = f"thread block {number}, step {at} ({kind} {chunks})"

    def peer(self, tb: Element, way: str, operation: Instruction) -> int:
        peer = _number(tb, way, -1)
        if not 0 <= peer < self.buffers.ranks or peer == operation.rank:
            raise ValueError(f"{operation}: {way}={peer} of its thread block is not another rank")
        return peer

    def assignments(self, kind: str, step: Element, here: int, count: int) -> Iterator[Assignment]:
        operation = self.operations[here]
        if kind == "nop":
            return
        if count < 1:
            raise ValueError(f"{operation}: cnt={count} is less than 1")
        for each in range(count):
            sent, received = Cell(operation.rank, f"sent by {here}", each), Cell(-1, RECEIVED, each)
            source = self.cell(step, "src", each, operation) if kind not in ("r", "rcs") else None
            to = self.cell(step, "dst", each, operation) if kind not in ("s", "rrs") else None
            of = {"re": (to, source), "r": (received,), "rcs": (received,), "s": (source,), "cpy": (source,)}
            cells = of.get(kind, (source, received))
            targets = ([to] if to else []) + ([sent] if kind in SENDS else [])
            yield Assignment(tuple(targets), cells)  # type: ignore[arg-type]

    def cell(self, step: Element, way: str, each: int, operation: Instruction) -> Cell:
        buffer, index = step.get(f"{way}buf"), _number(step, f"{way}off") + each
        if buffer not in SIZES:
            raise ValueError(f"{operation}: {way}buf={buffer!r} is not one of {', '.join(SIZES)}")
        size = _number(self.gpus[operation.rank], SIZES[buffer])
        if not 0 <= index < size:
            raise ValueError(f"{operation}: {buffer}[{index}] is outside of the {size} chunks of this buffer")
        return self.buffers.cell(operation.rank, buffer, index)

    def read_needs(self, rank: int, tb: Element) -> None:
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
                blocks = {self.operations[here].location.partition(",")[0] for here, _ in steps}
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
    """Return an assignment that reads what an operation has sent."""
    sent = (Cell(source, f"sent by {sender}", cell.offset) for cell in assignment.of)
    return assignment._replace(
        of=tuple(new if old.buffer == RECEIVED else old for old, new in zip(assignment.of, sent))
    )


def _number(element: Element, name: str, default: int | None = None) -> int:
    text = element.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(str(text))
    except ValueError:
        raise ValueError(f"{name}={text!r} of an element {element.tag} is not a number") from None


def read(text: str) -> tuple[Buffers, list[Instruction], Queues]:
    """Return the buffers and the operations of an XML text."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"it is not XML: {error}") from None
    if root.tag != "algo":
        raise ValueError(f"the first element is {root.tag}, not algo")
    reader = _Reader(root)
    return reader.buffers, *reader.read()
