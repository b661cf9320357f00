"""Execution plans of MSCCL++: JSON files, as its DSL writes them, and its executor reads them.

Plans are read as the executor of version 0.9 reads them.  The operations of a thread block run on all of its threads,
which only ``nop`` and ``barrier`` synchronize.  Therefore, an operation sees what operations of its thread block before
the last of these have written, and a ``put`` that no ``nop`` separates from its ``signal`` is a race.  ``signal`` and
``wait`` order memory, ``rlxsignal`` and ``rlxwait`` do not.  Channels of type ``port`` work in the background, each in
order; ``flush`` waits for a channel.  Packets (``pkt``) carry flags, and a reader waits for them.

If groups of thread blocks share operations, each of them has slices of the chunks, and chunks are counted in slices.
Operations with a switch (``glres``, ``gstore``) and pipelines are not read.

`write` makes plans of one thread block for each rank.  A message is a ``put`` and a ``signal`` on the sender, and a
``wait`` on the receiver.  It goes to scratch memory of its own, from where the receiver copies or reduces it, or to its
last cell, if the receiver has not used this before.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

from ..moves import Combine, Copy, Recv, Reduce, Send
from .cells import INPUT, OUTPUT, Cell
from .plan import Allocation, ExportedSchedule, runs

MEMORY = "memory"
NOP = {"name": "nop"}
Json = dict[str, Any]


class _PlanWriter:
    """The operations of all ranks."""

    def __init__(self, plan: ExportedSchedule) -> None:
        self.plan, self.allocation = plan, Allocation(plan, "MSCCL++")
        self.peers: list[list[int]] = [[] for _ in range(plan.ranks)]
        self.remote: list[list[tuple[int, str]]] = [[] for _ in range(plan.ranks)]
        self.used: list[set[Cell]] = [set() for _ in range(plan.ranks)]
        self.ops: list[list[Json]] = [[] for _ in range(plan.ranks)]
        self.landing: dict[tuple[int, int], list[list[Cell]]] = defaultdict(list)  # of each message

    def operations(self) -> list[list[Json]]:
        """Return the operations of each rank."""
        for rank in range(self.plan.ranks):
            self.used[rank] |= self.allocation.buffers.start(rank).keys()
            for moves in self.plan.rounds[rank]:
                self.peers[rank] += [move[0] for move in moves if isinstance(move, (Send, Recv, Reduce))]
                self.land(rank, moves)
            self.peers[rank] = sorted({*self.peers[rank]})
        taken: Counter[tuple[int, int]] = Counter()
        received: Counter[tuple[int, int]] = Counter()
        for rank in range(self.plan.ranks):
            for moves in self.plan.rounds[rank]:
                self.add_round(rank, moves, taken, received)
            self.add(rank, [self.local("copy", [source], to) for source, to in self.allocation.last_copies(rank)])
        return self.ops

    def land(self, rank: int, moves: Any) -> None:
        """Choose the cells of the messages that a rank receives."""
        for move in moves:
            blocks = move.blocks if isinstance(move, (Send, Recv, Reduce)) else move[:2]
            cells = [self.allocation.cell(rank, block) for block in blocks]
            if isinstance(move, (Recv, Reduce)):
                free = isinstance(move, Recv) and self.used[rank].isdisjoint(cells) and len({*cells}) == len(cells)
                self.landing[move.source, rank].append(cells if free else [self.allocation.new(rank) for _ in cells])
            self.used[rank] |= {*cells}

    def add(self, rank: int, operations: list[Json]) -> None:
        """Add operations that do not depend on each other, and a synchronization."""
        self.ops[rank] += [*operations, NOP] if operations else []

    def add_round(self, rank: int, moves: Any, taken: Counter[Any], received: Counter[Any]) -> None:
        puts: list[Json] = []
        after: list[Json] = []
        for move in moves:
            match move:
                case Send(peer, blocks):
                    cells = self.landing[rank, peer][taken[rank, peer]]
                    taken[rank, peer] += 1
                    pairs = [(self.allocation.cell(rank, block), cell) for block, cell in zip(blocks, cells)]
                    puts += [self.put(rank, *run) for run in runs(pairs)]
                case Recv(peer, blocks) | Reduce(peer, blocks):
                    found = self.landing[peer, rank][received[peer, rank]]
                    received[peer, rank] += 1
                    pairs = [(cell, self.allocation.cell(rank, block)) for block, cell in zip(blocks, found)]
                    for cell, to, count in runs([(cell, to) for cell, to in pairs if cell != to]):
                        name, of = ("re", [to, cell]) if isinstance(move, Reduce) else ("copy", [cell])
                        after += [self.local(name, of, to, count), NOP]
                case Copy(block, other):
                    self.add(
                        rank,
                        [self.local("copy", [self.allocation.cell(rank, block)], self.allocation.cell(rank, other))],
                    )
                case Combine(block, into):
                    cells = [self.allocation.cell(rank, each) for each in (into, block)]
                    self.add(rank, [self.local("re", cells, cells[0])])
        self.add(rank, puts)
        self.add(rank, self.flags(rank, "signal", [move.to for move in moves if isinstance(move, Send)]))
        self.add(rank, self.flags(rank, "wait", [move.source for move in moves if isinstance(move, (Recv, Reduce))]))
        self.ops[rank] += after

    def flags(self, rank: int, name: str, peers: list[int]) -> list[Json]:
        """Return one operation that signals peers, or waits for them."""
        channels = sorted({self.peers[rank].index(peer) for peer in peers})
        return [{"name": name, "channel_ids": channels, "channel_type": MEMORY}] if channels else []

    def put(self, rank: int, source: Cell, to: Cell, count: int) -> Json:
        remote = to.rank, to.buffer
        if remote not in self.remote[rank]:
            self.remote[rank].append(remote)
        there = {"buffer_id": self.remote[rank].index(remote), "index": to.offset, "size": count}
        return {"name": "put", "src_buff": [_here(source, count)], "dst_buff": [there], "channel_type": MEMORY}

    def local(self, name: str, of: list[Cell], to: Cell, count: int = 1) -> Json:
        found: Json = {"name": name, "src_buff": [_here(cell, count) for cell in of], "dst_buff": [_here(to, count)]}
        return found | ({"reduce_op": "sum"} if name == "re" else {})


def _here(cell: Cell, count: int) -> Json:
    return {"type": cell.buffer, "index": cell.offset, "size": count}


def write(plan: ExportedSchedule) -> str:
    """Return the text of an execution plan."""
    writer = _PlanWriter(plan)
    gpus = []
    for rank, ops in enumerate(writer.operations()):
        peers, remote = writer.peers[rank], writer.remote[rank]
        channels = [{"channel_type": MEMORY, "channel_ids": [*range(len(peers))]}] if peers else []
        refs = [{"access_channel_type": MEMORY, "remote_buffer_ids": [*range(len(remote))]}] if remote else []
        sizes = {"input_chunks": writer.allocation.size(INPUT), "output_chunks": writer.allocation.size(OUTPUT)}
        gpus.append(
            {"id": rank, **sizes, "scratch_chunks": writer.allocation.scratch[rank]}
            | {"threadblocks": [{"id": 0, "ops": ops, "channels": channels, "remote_buffer_refs": refs}]}
            | {"channels": [{"channel_type": MEMORY, "connected_to": peers}] if peers else []}
            | {"remote_buffers": [{"rank": r, "type": type, "access_channel_types": [MEMORY]} for r, type in remote]}
            | {"semaphores": []}
        )
    primitive = plan.algorithm.primitive.name
    head: Json = {"name": plan.algorithm.name, "collective": primitive.replace("_", ""), "protocol": "Simple"}
    head |= {"inplace": writer.allocation.buffers.in_place, "reuse_resources": False, "num_threads_per_block": 1024}
    head |= {"use_double_scratch_buffer": False, "buffer_alignment": 16, "min_message_size": 0}
    return json.dumps(head | {"max_message_size": 2**64 - 1, "gpus": gpus}, indent=1) + "\n"
