"""Programs for buffers in GPU memory: where they wait for the GPU, and how they are staged through host memory.

A GPU combines and copies asynchronously, in the order of the launches.  `unstaged` programs pass GPU memory to MPI.
`staged` programs mirror it in host memory, and send, receive and combine there.  Both wait for the GPU only where they
must: one segment is copied or combined while the next one is being received.

This module knows neither MPI nor CUDA.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from .program import (
    RECV,
    SCRATCH,
    SEND,
    Apply,
    CopyBytes,
    Divide,
    Finish,
    Message,
    Program,
    Ready,
    Region,
    Start,
    Step,
    Wait,
)
from .storage import aligned

PIECE = 1 << 20  # contiguous bytes that are copied at once between host and device
_ALL = 1 << 62


@lru_cache(maxsize=512)
def unstaged(program: Program) -> Program:
    """Return the program for buffers in GPU memory that MPI reads and writes directly."""
    return _synchronized(replace(program, steps=[Ready(), *program.steps]), {SEND, RECV, SCRATCH})


@lru_cache(maxsize=512)
def staged(program: Program, send: int | None, recv: int | None) -> Program:
    """Return the program for buffers in GPU memory of `send` and `recv` bytes, with mirrors of them in host scratch.

    The bytes that the program reads are copied to the mirrors at the start, in the order in which they are needed.
    Results are copied back as soon as they are final.  None means a buffer in host memory, which is used directly.
    """
    mirrors, top = {}, aligned(program.scratch)
    for buffer, size in ((SEND, send), (RECV, recv)):
        if size is not None:
            mirrors[buffer] = top
            top += aligned(size)
    final = _final_writes(program)
    steps: list[Step] = [Ready()]
    for buffer in mirrors:
        steps += [CopyBytes(region, _mirrored(region, mirrors)) for region in _needed(program, buffer)]
    pending, bound_for_home = {buffer: ByteSet() for buffer in mirrors}, 0
    for number, step in enumerate(program.steps):
        steps.append(_mirrored_step(step, mirrors))
        for region in final.get(number, ()):
            if region.buffer in mirrors:
                pending[region.buffer].add(region.start, region.start + region.size)
                bound_for_home += region.size
        if bound_for_home and (bound_for_home >= PIECE or number + 1 == len(program.steps)):
            for buffer, written in pending.items():
                for start, end in written.intervals():
                    region = Region(buffer, start, end - start)
                    steps.append(CopyBytes(_mirrored(region, mirrors), region))
            pending, bound_for_home = {buffer: ByteSet() for buffer in mirrors}, 0
    messages = [message._replace(region=_mirrored(message.region, mirrors)) for message in program.messages]
    return _synchronized(Program(steps, messages, top, program.name), set(mirrors))


def _mirrored(region: Region, mirrors: dict[int, int]) -> Region:
    if region.buffer not in mirrors:
        return region
    return Region(SCRATCH, mirrors[region.buffer] + region.start, region.size)


def _mirrored_step(step: Step, mirrors: dict[int, int]) -> Step:
    if isinstance(step, Apply | CopyBytes | Divide):
        return type(step)(*(_mirrored(region, mirrors) for region in step))
    return step


def _accesses(step: Step, messages: list[Message]) -> tuple[list[Region], list[Region]]:
    """Return the regions that a step reads and writes; a receive may write as soon as it is started."""
    match step:
        case Start(number):
            message = messages[number]
            return ([message.region], []) if message.outgoing else ([], [message.region])
        case Wait(number):
            message = messages[number]
            return [], [] if message.outgoing else [message.region]
        case Apply(left, right, out):
            return [left, right], [out]
        case CopyBytes(source, to):
            return [source], [to]
        case Divide(region):
            return [region], [region]
    return [], []


def _needed(program: Program, buffer: int) -> list[Region]:
    """Return the regions of a buffer that are read before they are written, in the order of the reads."""
    known, needed = ByteSet(), list[Region]()
    for step in program.steps:
        reads, writes = _accesses(step, program.messages)
        for region in reads:
            if region.buffer == buffer:
                for start, end in known.missing(region.start, region.start + region.size):
                    last = needed[-1] if needed else None
                    if last and last.start + last.size == start and last.size < PIECE:
                        needed[-1] = Region(buffer, last.start, end - last.start)
                    else:
                        needed.append(Region(buffer, start, end - start))
        for region in [*reads, *writes]:
            if region.buffer == buffer:
                known.add(region.start, region.start + region.size)
    return needed


def _final_writes(program: Program) -> dict[int, list[Region]]:
    """Return for each step, by number, the regions that no later step writes."""
    later = {buffer: ByteSet() for buffer in (SEND, RECV, SCRATCH)}
    final: dict[int, list[Region]] = {}
    for number in range(len(program.steps) - 1, -1, -1):
        step = program.steps[number]
        if type(step) is Start:  # the region is written when the message has arrived
            continue
        for region in _accesses(step, program.messages)[1]:
            rest = later[region.buffer].missing(region.start, region.start + region.size)
            final.setdefault(number, []).extend(Region(region.buffer, start, end - start) for start, end in rest)
            later[region.buffer].add(region.start, region.start + region.size)
    return final


def _synchronized(program: Program, on_device: set[int]) -> Program:
    """Return the program with a `Finish` wherever a message or the host must wait for the GPU."""
    steps: list[Step] = []
    pending: list[tuple[int, list[Region], list[Region]]] = []
    for step in program.steps:
        reads, writes = _accesses(step, program.messages)
        if isinstance(step, Ready):  # stands for all earlier work of the GPU, including the work of the caller
            writes = [Region(buffer, 0, _ALL) for buffer in on_device]
        touched = not isinstance(step, Start | Wait) and any(r.buffer in on_device for r in [*reads, *writes])
        if touched or isinstance(step, Ready):
            pending.append((len(steps), reads, writes))
        else:
            for number, read, written in reversed(pending):
                if _any_overlap(reads, written) or _any_overlap(writes, [*read, *written]):
                    steps.append(Finish(number))
                    pending = [other for other in pending if other[0] > number]
                    break
        steps.append(step)
    if pending:
        steps.append(Finish(pending[-1][0]))
    return replace(program, steps=steps)


def _any_overlap(some: list[Region], others: list[Region]) -> bool:
    return any(one.overlaps(other) for one in some for other in others)


class ByteSet:
    """A set of bytes, as intervals."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def intervals(self) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of each interval, in order."""
        return zip(self._starts, self._ends)

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of an interval that are not in the set."""
        found = []
        for taken, released in self.intervals():
            if released > start and taken < end:
                if start < taken:
                    found.append((start, taken))
                start = released
        return [*found, (start, end)] if start < end else found

    def add(self, start: int, end: int) -> None:
        """Add an interval; adjacent intervals are merged."""
        if start >= end:
            return
        first = bisect_right(self._ends, start - 1)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]
