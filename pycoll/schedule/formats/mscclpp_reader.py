"""Reading execution plans of MSCCL++; see `pycoll.schedule.formats.mscclpp`."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from .cells import Buffers, Cell, buffers_of
from .operations import Assignment, Instruction

Json = dict[str, Any]
SIZES = {"i": "input_chunks", "o": "output_chunks", "s": "scratch_chunks"}
SIGNALS = {"signal": True, "rlxsignal": False}  # whether they order memory
WAITS = {"wait": True, "rlxwait": False}
PUTS = {"put", "pws", "pwsf", "get", "ppkt", "rppkt"}  # each source to its target, or one source to all
SUMS = {"copy", "re", "res", "rre", "rres"}
PACKETS = {  # the sources that are no packets, and the targets that are none
    "ppkt": (1, 0),
    "rppkt": (0, 0),
    "respkt": (1, 1),
    "repkt": (1, 1),
    "recspkt": (1, 1),
    "recpkt": (1, 1),
    "cpkt": (1, 0),
    "upkt": (0, 1),
}


class Reader:
    """The operations of a plan."""

    def __init__(self, plan: Json) -> None:
        self.gpus: list[Json] = plan["gpus"]
        ranks = len(self.gpus)
        if [gpu["id"] for gpu in self.gpus] != [*range(ranks)]:
            raise ValueError(f'the ids of "gpus" are not 0 to {ranks - 1}')
        ops = [op for gpu in self.gpus for block in gpu["threadblocks"] for op in block["ops"] if "tbg_info" in op]
        self.slices = math.lcm(*(op["tbg_info"]["tbg_size"] for op in ops))  # of each chunk
        counts = [gpu[name] * self.slices for gpu in self.gpus for name in ("input_chunks", "output_chunks")]
        self.buffers: Buffers = buffers_of(plan["collective"], ranks, counts, plan["inplace"])
        self.operations: list[Instruction] = []
        self.signals: dict[tuple[Any, ...], list[tuple[int, bool]]] = defaultdict(list)  # by channel
        self.waits: dict[tuple[Any, ...], list[tuple[int, bool]]] = defaultdict(list)
        self.users: dict[tuple[Any, ...], set[int]] = defaultdict(set)  # the thread blocks that use a channel
        self.writes: dict[Cell, int] = {}  # of packets
        self.reads: list[tuple[int, Cell]] = []
        self.barriers: dict[tuple[int, int], dict[int, list[tuple[int, int]]]] = {}
        self.acquired: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.released: dict[tuple[int, int], list[int]] = defaultdict(list)

    def read(self) -> list[Instruction]:
        """Return all operations, after those that they wait for are known."""
        for rank, gpu in enumerate(self.gpus):
            for block in gpu["threadblocks"]:
                _ThreadBlock(self, rank, block).read()
        self.match_signals()
        self.match_packets()
        self.match_barriers()
        self.match_semaphores()
        return self.operations

    def match_signals(self) -> None:
        """Let each wait be after its signal."""
        for channel, waits in self.waits.items():
            signals = self.signals[channel]
            for number, (here, acquires) in enumerate(waits):
                if number >= len(signals):
                    self.operations[here].lacks = f"a signal from rank {channel[1]}, which never comes"
                    continue
                signal, releases = signals[number]
                operation = self.operations[here]
                (operation.after if acquires and releases else operation.waits).append(signal)
        for key, blocks in self.users.items():
            if len(blocks) > 1:
                raise ValueError(f"rank {key[1]}: several thread blocks {key[0]} on a channel of rank {key[2]}")

    def match_packets(self) -> None:
        """Let operations that read packets be after those that write them."""
        for here, cell in self.reads:
            if cell in self.writes:
                self.operations[here].after.append(self.writes[cell])
            else:
                self.operations[here].lacks = f"a packet in {cell}, which never comes"

    def match_barriers(self) -> None:
        """Let the thread blocks of a barrier leave it after all have come."""
        for (_, barrier), blocks in self.barriers.items():
            most = max(map(len, blocks.values()))
            for number in range(most):
                here = [calls[number] for calls in blocks.values() if number < len(calls)]
                for operation, count in here:
                    self.operations[operation].after += [each - 1 for each, _ in here]
                    if count != len(here):
                        missing = f"{count} thread blocks at barrier {barrier}, to which {len(here)} come"
                        self.operations[operation].lacks = missing

    def match_semaphores(self) -> None:
        """Let each acquisition of a semaphore be after its release."""
        for (rank, semaphore), acquired in self.acquired.items():
            before = self.gpus[rank]["semaphores"][semaphore]["init_value"]
            released = self.released[rank, semaphore]
            for each in (acquired, released):
                if len({self.operations[here].location.partition(",")[0] for here in each}) > 1:
                    raise ValueError(f"rank {rank}: several thread blocks compete for semaphore {semaphore}")
            for number, here in enumerate(acquired):
                if number - before >= len(released):
                    self.operations[here].lacks = f"semaphore {semaphore}, which no one releases"
                elif number >= before:
                    self.operations[here].after.append(released[number - before])


class _ThreadBlock:
    """The operations of a thread block."""

    def __init__(self, reader: Reader, rank: int, block: Json) -> None:
        self.reader, self.rank, self.block = reader, rank, block
        self.operations = reader.operations
        self.sync: list[int] = []  # the last synchronization of all threads
        self.since: list[int] = []  # the operations after it
        self.lanes: dict[int, int] = {}  # the last operation in the background of each channel of type port

    def read(self) -> None:
        """Add the operations."""
        for at, op in enumerate(self.block["ops"]):
            here = self.add(f"step {at} ({op['name']})")
            try:
                self.interpret(here, op)
            except (LookupError, TypeError) as error:
                why = "it lacks a field, or names a channel or a buffer that its thread block does not have"
                raise ValueError(f"{self.operations[here]}: {why} ({type(error).__name__}: {error})") from None

    def interpret(self, here: int, op: Json) -> None:
        """Find out what an operation does, and for what it waits."""
        name = op["name"]
        if name in ("nop", "barrier"):
            self.synchronize(here, op)
        elif name in SIGNALS:
            for channel in op["channel_ids"]:
                self.signal(here, op, channel, SIGNALS[name])
        elif name in WAITS:
            for channel in op["channel_ids"]:
                key = self.key(op, channel, mine=False)
                self.reader.waits[key].append((here, WAITS[name]))
                self.reader.users["wait", self.rank, key[1], key[3:]].add(self.block["id"])
        elif name == "flush":
            self.operations[here].after += [self.lanes[each] for each in op["channel_ids"] if each in self.lanes]
        elif name in ("sem_acquire", "sem_release"):
            held = self.reader.acquired if name == "sem_acquire" else self.reader.released
            for semaphore in op["semaphore_ids"]:
                held[self.rank, semaphore].append(here)
        elif name in PUTS | SUMS or name in PACKETS:
            self.data(here, op)
        else:
            raise ValueError(f"{self.operations[here]}: this operation is not read")

    def add(self, location: str) -> int:
        """Add an operation, after the last synchronization; return its number."""
        number = len(self.operations)
        before = [self.since[-1]] if self.since else self.sync
        self.operations.append(
            Instruction(self.rank, f"thread block {self.block['id']}, {location}", after=[*self.sync], waits=[*before])
        )
        self.since.append(number)
        return number

    def synchronize(self, here: int, op: Json) -> None:
        operation = self.operations[here]
        operation.after += self.since[:-1]
        if op["name"] == "barrier":
            leave = Instruction(self.rank, operation.location, after=[here])
            self.operations.append(leave)
            calls = self.reader.barriers.setdefault((self.rank, op["barrier_id"]), {})
            calls.setdefault(self.block["id"], []).append((here + 1, op["num_threadblocks"]))
            here += 1
        self.sync, self.since = [here], []

    def key(self, op: Json, channel: int, mine: bool) -> tuple[Any, ...]:
        """Return the channel of a signal: the receiver, the sender, its type, and its number between them."""
        kind = op["channel_type"]
        ids = [
            each for group in self.block["channels"] if group["channel_type"] == kind for each in group["channel_ids"]
        ]
        groups = [group for group in self.reader.gpus[self.rank]["channels"] if group["channel_type"] == kind]
        peers = [peer for group in groups for peer in group["connected_to"]]
        at = _item(ids, channel)
        peer = _item(peers, at)
        number = peers[:at].count(peer)
        return (peer, self.rank, kind, number) if mine else (self.rank, peer, kind, number)

    def signal(self, here: int, op: Json, channel: int, releases: bool) -> None:
        key = self.key(op, channel, mine=True)
        self.reader.users["signal", self.rank, key[0], key[2:]].add(self.block["id"])
        if op["channel_type"] == "port":
            here = self.background(here, channel, [])
        self.reader.signals[key].append((here, releases))

    def background(self, here: int, channel: int, assignments: list[Assignment]) -> int:
        """Add an operation that a channel does after those that it has to do already."""
        lane = [self.lanes[channel]] if channel in self.lanes else []
        location = f"{self.operations[here].location} in the background"
        self.operations.append(Instruction(self.rank, location, assignments, [*self.sync, *lane], [here]))
        self.lanes[channel] = len(self.operations) - 1
        return self.lanes[channel]

    def data(self, here: int, op: Json) -> None:
        """Add the assignments of an operation on data."""
        name = op["name"]
        sources = [self.cells(op, buff, here) for buff in op["src_buff"]]
        targets = [self.cells(op, buff, here) for buff in op["dst_buff"]]
        sizes = {len(cells) for cells in (*sources, *targets)}
        if len(sizes) != 1 or (name in PUTS and len(sources) not in (1, len(targets))):
            raise ValueError(f"{self.operations[here]}: the buffers have different sizes")
        self.operations[here].location = self.operations[here].location.replace(
            f"({name})", f"({name} {targets[0][0]})"
        )
        port = op.get("channel_type") == "port"
        if name in PUTS:
            sources = sources if len(sources) > 1 else sources * len(targets)
            for number, (source, to) in enumerate(zip(sources, targets)):
                found = [Assignment((b,), (a,)) for a, b in zip(source, to)]
                done = self.background(here, op["channel_ids"][number], found) if port else here
                self.operations[here].assignments += [] if port else found
                if name in ("pws", "pwsf"):
                    self.signal(here, op, op["channel_ids"][number], True)
                self.packets(name, done, [source], [to])
            if name == "pwsf":
                flush = self.add(f"{self.operations[here].location.partition(', ')[2]}, flush")
                self.operations[flush].after += [self.lanes[channel] for channel in op["channel_ids"]]
            return
        if port:
            raise ValueError(f"{self.operations[here]}: this operation on a port channel is not read")
        self.operations[here].assignments += [Assignment(to, of) for to, of in zip(zip(*targets), zip(*sources))]
        self.packets(name, here, sources, targets)

    def packets(self, name: str, here: int, sources: list[list[Cell]], targets: list[list[Cell]]) -> None:
        """Note the packets that an operation reads and writes."""
        plain_sources, plain_targets = PACKETS.get(name, (len(sources), len(targets)))
        for cells in sources[plain_sources:]:
            self.reader.reads += [(here, cell) for cell in cells]
        for cells in targets[plain_targets:]:
            for cell in cells:
                if cell in self.reader.writes:
                    both = f"{self.operations[self.reader.writes[cell]]} and {self.operations[here]}"
                    raise ValueError(f"race: {both} write a packet to {cell} of rank {cell.rank}")
                self.reader.writes[cell] = here

    def cells(self, op: Json, buff: Json, here: int) -> list[Cell]:
        """Return the cells of a part of a buffer, of this rank or of another one."""
        rank, kind = self.rank, str(buff.get("type"))
        if "buffer_id" in buff:
            refs = [ref for ref in self.block["remote_buffer_refs"] if ref["access_channel_type"] == op["channel_type"]]
            ids = [each for ref in refs for each in ref["remote_buffer_ids"]]
            remote = _item(self.reader.gpus[self.rank]["remote_buffers"], _item(ids, buff["buffer_id"]))
            rank, kind = remote["rank"], remote["type"]
        size = _item(self.reader.gpus, rank)[SIZES[kind]]
        indices = range(buff["index"], buff["index"] + buff["size"])
        if buff["index"] < 0 or not indices or indices[-1] >= size:
            where = f"{kind}[{buff['index']}] to {kind}[{indices[-1] if indices else '?'}]"
            raise ValueError(f"{self.operations[here]}: {where} is outside of the {size} chunks of rank {rank}")
        slices = range(indices[0] * self.reader.slices, (indices[-1] + 1) * self.reader.slices)
        if "tbg_info" in op:
            group = op["tbg_info"]
            length = len(slices) // group["tbg_size"]
            slices = slices[group["tb_id"] * length :][:length]
        return [self.reader.buffers.cell(rank, kind, index) for index in slices]


def _item(items: list[Any], index: int) -> Any:
    """Return an item of a list; a negative index is none."""
    return items[index if index >= 0 else len(items)]


def read(plan: Any) -> tuple[Buffers, list[Instruction]]:
    """Return the buffers and the operations of a plan."""
    try:
        reader = Reader(plan)
        return reader.buffers, reader.read()
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not an execution plan of MSCCL++: {type(error).__name__}: {error}") from None
