"""Algorithms of MSCCL: XML files, as msccl-tools writes them, and the runtime of MSCCL reads them.

A thread block of a GPU has steps, and at most one GPU to which it sends, and one from which it receives.  A step may
wait for a step of another thread block.  A send ends when its data is in the queue of the connection, which has room
for two sends (eight, with the protocols LL and LL128).  These are the steps:

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
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from ..moves import Combine, Copy, Recv, Reduce, Send
from .cells import INPUT, OUTPUT, Cell
from .plan import Allocation, ExportedSchedule, runs

Place = tuple[int, int]  # a thread block and a step


@dataclass
class _XmlStep:
    kind: str
    source: Cell | None
    to: Cell | None
    count: int
    needs: Place | None = None
    is_needed: bool = False


@dataclass
class _Block:
    send: int = -1
    recv: int = -1
    steps: list[_XmlStep] = field(default_factory=list)
    known: dict[int, int] = field(default_factory=dict)  # the last step of other blocks that it has waited for


class _Gpu:
    """The thread blocks of a rank: one for each partner and direction, and one for local moves."""

    def __init__(self) -> None:
        self.blocks: list[_Block] = []
        self.written: dict[Cell, Place] = {}
        self.read: dict[Cell, list[Place]] = defaultdict(list)

    def add(self, step: _XmlStep, send: int = -1, recv: int = -1) -> None:
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
        extra = [*last.items()]
        step.needs = extra.pop() if extra else None
        block.steps += [_XmlStep("nop", None, None, 0, each) for each in extra]
        block.steps.append(step)
        for other, at in last.items():
            self.blocks[other].steps[at].is_needed = True
        here = number, len(block.steps) - 1
        for cell in reads:
            self.read[cell].append(here)
        for cell in writes:
            self.written[cell], self.read[cell] = here, []


def _range(cell: Cell | None, count: int) -> list[Cell]:
    return [cell._replace(offset=cell.offset + each) for each in range(count)] if cell else []


def write(plan: ExportedSchedule) -> str:
    """Return the XML text of an algorithm."""
    allocation = Allocation(plan, "MSCCL")
    gpus = [_gpu(plan, allocation, rank) for rank in range(plan.ranks)]
    sizes = {"i_chunks": allocation.size(INPUT), "o_chunks": allocation.size(OUTPUT)}
    name, coll = plan.algorithm.name, plan.algorithm.primitive.name
    fields = {"name": name, "proto": "Simple", "nchannels": 1, "nchunksperloop": max(sizes.values())}
    fields |= {"ngpus": plan.ranks, "coll": coll, "inplace": int(allocation.buffers.in_place)}
    root = ElementTree.Element("algo", _texts(fields))
    for rank, gpu in enumerate(gpus):
        element = ElementTree.SubElement(
            root, "gpu", _texts({"id": rank, **sizes, "s_chunks": allocation.scratch[rank]})
        )
        for number, block in enumerate(gpu.blocks):
            attributes = {"id": number, "send": block.send, "recv": block.recv, "chan": 0}
            tb = ElementTree.SubElement(element, "tb", _texts(attributes))
            for at, step in enumerate(block.steps):
                ElementTree.SubElement(tb, "step", _texts(_attributes(at, step)))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _texts(values: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _attributes(at: int, step: _XmlStep) -> dict[str, Any]:
    block, other = step.needs or (-1, -1)
    source, to = step.source or Cell(0, INPUT, -1), step.to or Cell(0, OUTPUT, -1)
    found = {"s": at, "type": step.kind, "srcbuf": source.buffer, "srcoff": source.offset, "dstbuf": to.buffer}
    return found | {
        "dstoff": to.offset,
        "cnt": step.count,
        "depid": block,
        "deps": other,
        "hasdep": int(step.is_needed),
    }


def _gpu(plan: ExportedSchedule, allocation: Allocation, rank: int) -> _Gpu:
    gpu = _Gpu()
    for moves in plan.rounds[rank]:
        for move in sorted(moves, key=lambda move: not isinstance(move, Send)):
            match move:
                case Send(peer, blocks):
                    pairs = [(allocation.cell(rank, block), allocation.cell(peer, block)) for block in blocks]
                    for cell, _, count in runs(pairs):
                        gpu.add(_XmlStep("s", cell, None, count), send=peer)
                case Recv(peer, blocks) | Reduce(peer, blocks):
                    pairs = [(allocation.cell(peer, block), allocation.cell(rank, block)) for block in blocks]
                    for _, cell, count in runs(pairs):
                        reduces = isinstance(move, Reduce)
                        gpu.add(_XmlStep("rrc" if reduces else "r", cell if reduces else None, cell, count), recv=peer)
                case Copy(block, to):
                    gpu.add(_XmlStep("cpy", allocation.cell(rank, block), allocation.cell(rank, to), 1))
                case Combine(block, into):
                    gpu.add(_XmlStep("re", allocation.cell(rank, block), allocation.cell(rank, into), 1))
    for source, cell in allocation.last_copies(rank):
        gpu.add(_XmlStep("cpy", source, cell, 1))
    return gpu
