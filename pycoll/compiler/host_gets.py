"""Programs for registered buffers of ranks on several hosts: blocks of ranks of the same host are read, not received.

The schedule is the same as with messages, and so are the messages between hosts.  Inside a host, a message with data
becomes two empty ones.  The sender says that its blocks are ready; where they are follows from its program.  The
receiver copies them, or combines its own with them, and then says that it is done.  Until then, the sender does not
change its blocks.

This cannot deadlock.  In each round, a rank first says that its blocks are ready.  It waits first for the ranks whose
blocks it reads, and for messages between hosts, all from the matching round.  It waits last for the ranks that read its
blocks.
"""

from __future__ import annotations

from functools import lru_cache

from ..schedule.moves import Block, Recv, Reduce, Round, Send
from .layout import layout
from .lower import Compiler, SegmentedMessage, applied
from .program import (
    EMPTY,
    INPUT,
    OUTPUT,
    SCRATCH,
    SEND,
    CopyBytes,
    Divide,
    Layout,
    Message,
    Program,
    Region,
    Start,
    Wait,
    peer_buffer,
)
from .program_key import ProgramKey, key_of, longest_message
from .registered import RegisteredProgram

Moves = list[Send | Recv | Reduce]
_Exposed = dict[tuple[int, int], list[dict[Block, Region]]]  # by sender and receiver, in order: the regions of blocks


class _Unreadable(Exception):
    """Raised if a rank would have to read scratch of another rank, or a block that changes in the meantime."""


@lru_cache(maxsize=512)
def host_gets(key: ProgramKey, hosts: tuple[int, ...], mean: bool = False) -> RegisteredProgram | None:
    """Return the program of one rank, or None on all ranks of its host if there is none.

    Ranks of other hosts may use messages only.  With `mean`, it divides by the number of ranks.
    """
    here = [rank for rank in range(key.size) if hosts[rank] == hosts[key.rank]]
    if key.algorithm.primitive.name == "reduce":
        return None  # ranks do not know whether the root works in place, where they would read its contributions
    exposed: _Exposed = {}
    try:
        for rank in here:
            _compile(key, rank, here, {}, exposed)
        program = _compile(key, key.rank, here, exposed, {})
    except _Unreadable:
        return None
    read = {
        (here.index(sender), INPUT if region.buffer == SEND else OUTPUT)
        for (sender, _), several in exposed.items()
        for regions in several
        for region in regions.values()
    }
    if mean:
        program.steps.extend(Divide(region) for region in layout(key).wanted.values() if region.size)
    return RegisteredProgram(program, Program([], [], 0), tuple(sorted(read))) if read else None


def _compile(key: ProgramKey, rank: int, here: list[int], exposed: _Exposed, own: _Exposed) -> Program:
    key = key_of(key, rank)
    rounds = list(key.algorithm.schedule(rank, key.size, key.root, key.segments, key.hosts))
    return _HostGets(rounds, layout(key), longest_message(key), rank, here, exposed, own).program()


class _HostGets(Compiler):
    """Compiles the rounds of one rank; `exposed` are the blocks that other ranks expose, `own` those of this rank."""

    def __init__(
        self,
        rounds: list[Round],
        layout: Layout,
        segment: int,
        rank: int,
        here: list[int],
        exposed: _Exposed,
        own: _Exposed,
    ) -> None:
        super().__init__(rounds, layout, segment)
        self.rank, self.here = rank, here
        self.exposed = {pair: iter(several) for pair, several in exposed.items()}
        self.own = own
        # of the current round: messages from ranks whose blocks are ready, what is read from them, and messages to wait
        # for at the end
        self.ready: dict[int, int] = {}
        self.gets: list[Recv | Reduce] = []
        self.ends: list[int] = []

    def exchange(self, moves: Moves) -> None:
        """Compile a round with messages."""
        inside = [move for move in moves if self.peer(move) in self.here and self.blocks.total(move.blocks)]
        outside = [move for move in moves if move not in inside]
        if inside and _conflicts(moves, inside, outside):
            raise _Unreadable
        sends = [move for move in inside if isinstance(move, Send)]
        self.gets = [move for move in inside if not isinstance(move, Send)]
        for move in sends:
            self.expose(move)
        targets, sources = (list(dict.fromkeys(map(self.peer, some))) for some in (sends, self.gets))
        self.ends = [self.notify(True, peer) for peer in targets]
        self.ready = {peer: self.notify(False, peer) for peer in sources}
        self.ends += [self.notify(False, peer) for peer in targets]
        super().exchange(outside)

    def meanwhile(self) -> None:
        """Read blocks of ranks of this host, while messages between hosts are in flight."""
        super().meanwhile()
        sources = list(self.ready)
        for move in self.gets:
            if move.source in self.ready:
                self.steps.append(Wait(self.ready.pop(move.source)))
            self.get(move)
        self.ends += [self.notify(True, source) for source in sources]

    def interleave(self, sends: list[SegmentedMessage], receives: list[SegmentedMessage]) -> None:
        """Compile the messages between hosts, and wait until the blocks of this rank have been read."""
        super().interleave(sends, receives)
        self.steps += map(Wait, self.ends)
        self.ends = []

    @staticmethod
    def peer(move: Send | Recv | Reduce) -> int:
        return move.to if isinstance(move, Send) else move.source

    def notify(self, outgoing: bool, peer: int) -> int:
        """Start an empty message."""
        self.messages.append(Message(outgoing, peer, EMPTY, self.blocks.now))
        self.steps.append(Start(len(self.messages) - 1))
        return len(self.messages) - 1

    def expose(self, move: Send) -> None:
        """Note where the blocks are for another rank, and leave them there in this round."""
        regions = {block: region for block in move.blocks if (region := self.blocks.where[block]).size}
        if any(region.buffer == SCRATCH for region in regions.values()):
            raise _Unreadable
        self.blocks.busy += regions.values()
        self.own.setdefault((self.rank, move.to), []).append(regions)

    def get(self, move: Recv | Reduce) -> None:
        """Copy the blocks of another rank, or combine them with those of this rank."""
        regions = next(self.exposed.get((move.source, self.rank), iter(())), {})
        for block in move.blocks:
            if not self.blocks.layout.size(block):
                self.blocks.assign([block], EMPTY)
                continue
            theirs = self.at(move.source, regions.get(block, EMPTY))
            if isinstance(move, Recv):
                self.steps.append(CopyBytes(theirs, self.blocks.destination([block])))
                continue
            held, out = self.blocks.operands([block])
            self.steps.append(applied(held, theirs, out, move.order))
            self.blocks.assign([block], out)
            self.blocks.busy.append(out)

    def at(self, rank: int, region: Region) -> Region:
        """Return a region of a rank of this host, in terms of the buffers of all of them."""
        which = INPUT if region.buffer == SEND else OUTPUT
        return region._replace(buffer=peer_buffer(self.here.index(rank), which))


def _conflicts(moves: Moves, inside: Moves, outside: Moves) -> bool:
    """Return whether a block that is sent changes in the round, or is received both from this host and from another."""
    sent = {block for move in moves if isinstance(move, Send) for block in move.blocks}
    read, received = (
        {block for move in some if not isinstance(move, Send) for block in move.blocks} for some in (inside, outside)
    )
    return bool(sent & (read | received) or read & received)
