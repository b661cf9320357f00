"""Machine that runs the compiled programs of all ranks on NumPy buffers without MPI, in the worst way that MPI allows.

Messages between two ranks are matched first-in, first-out and are never buffered: no data moves before both ends have
started the message.  A message may move at any time between its start and its wait.  Therefore each program is run
twice: with every message moving as early as possible, and as late as possible.  The memory of a receive holds garbage
until the message arrives.  Buffers may be in the memory of a simulated GPU, which does no work until it is waited for.
"""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np

from pycoll.compiler.program import Apply, CopyBytes, Divide, Finish, Program, Ready, Region, Start, Wait

LOCAL = Apply, CopyBytes, Divide


class Machine:
    """The programs and buffers of all ranks; `run` executes the programs to their end."""

    def __init__(
        self, programs: list[Program], buffers: list[list[np.ndarray]], ufunc, eager: bool, on_device=()
    ) -> None:
        self.programs, self.ufunc, self.eager, self.on_device = programs, ufunc, eager, on_device
        self.queues = [deque() for _ in programs]  # pending work of the GPU of each rank: (number of the step, step)
        self.dtype = buffers[0][0].dtype
        self.memory = [
            [a.reshape(-1).view(np.uint8) for a in mine] + [np.full(program.scratch, 0xA5, np.uint8)]
            for mine, program in zip(buffers, programs)
        ]
        self.pairs: dict[tuple[int, int], tuple[deque, deque]] = defaultdict(lambda: (deque(), deque()))
        self.matched: dict[tuple[int, int], tuple[int, int]] = {}
        self.done: set[tuple[int, int]] = set()

    def view(self, rank: int, region: Region) -> np.ndarray:
        assert region.start + region.size <= self.memory[rank][region.buffer].size, "outside the buffer"
        return self.memory[rank][region.buffer][region.start : region.start + region.size]

    def values(self, rank: int, region: Region) -> np.ndarray:
        return self.view(rank, region).view(self.dtype)

    def start(self, rank: int, number: int) -> None:
        message = self.programs[rank].messages[number]
        if not message.outgoing:
            self.view(rank, message.region)[:] = 0xA5
        pair = self.pairs[(rank, message.peer) if message.outgoing else (message.peer, rank)]
        pair[0 if message.outgoing else 1].append((rank, number))
        while pair[0] and pair[1]:
            send, receive = pair[0].popleft(), pair[1].popleft()
            self.matched[send], self.matched[receive] = receive, send
            if self.eager:
                self.transfer(send, receive)

    def transfer(self, send: tuple[int, int], receive: tuple[int, int]) -> None:
        regions = [self.programs[rank].messages[number].region for rank, number in (send, receive)]
        assert regions[0].size == regions[1].size, "the two ends cut a message differently"
        self.view(receive[0], regions[1])[:] = self.view(send[0], regions[0])
        self.done |= {send, receive}

    def wait(self, rank: int, number: int) -> bool:
        """Complete a message; return False if its other end has not been started."""
        end = (rank, number)
        if end not in self.matched:
            return False
        if end not in self.done:
            other = self.matched[end]
            outgoing = self.programs[rank].messages[number].outgoing
            self.transfer(end, other) if outgoing else self.transfer(other, end)
        return True

    def step(self, rank: int, number: int) -> bool:
        """Execute one step, or queue it for the GPU; return False if the step must wait for a message."""
        step = self.programs[rank].steps[number]
        if isinstance(step, Ready) or (
            self.on_device and isinstance(step, LOCAL) and any(region.buffer in self.on_device for region in step)
        ):
            self.queues[rank].append((number, step))
            return True
        return self.do(rank, step)

    def do(self, rank: int, step) -> bool:
        kind = type(step)  # a match statement takes longer
        if kind is Start:
            self.start(rank, step.message)
        elif kind is Wait:
            return self.wait(rank, step.message)
        elif kind is Apply:
            self.values(rank, step.out)[:] = self.ufunc(self.values(rank, step.left), self.values(rank, step.right))
        elif kind is CopyBytes:
            self.view(rank, step.to)[:] = self.view(rank, step.source).copy()
        elif kind is Divide:
            self.values(rank, step.region)[:] //= len(self.programs)
        elif kind is Finish:
            while self.queues[rank] and self.queues[rank][0][0] <= step.step:
                self.do(rank, self.queues[rank].popleft()[1])
        else:
            assert kind is Ready
        return True

    def run(self, order: list[int]) -> None:
        """Run all ranks to the end, each as far as possible, in the given order of preference."""
        at = [0] * len(self.programs)
        while True:
            moved = False
            for rank in order:
                steps = self.programs[rank].steps
                while at[rank] < len(steps) and self.step(rank, at[rank]):
                    at[rank] += 1
                    moved = True
            if all(at[rank] == len(program.steps) for rank, program in enumerate(self.programs)):
                break
            assert moved, (
                f"deadlock at {[p.steps[i] if i < len(p.steps) else 'end' for i, p in zip(at, self.programs)]}"
            )
        assert not any(self.queues), "a program has ended, and its GPU not"
        assert not any(sends or receives for sends, receives in self.pairs.values()), "messages left over"
