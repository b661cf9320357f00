"""Reads the events of all ranks from their files, and converts times to the clock of rank 0."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.recording.recorder import EVENT, HEADER, events_path, meanings_path
from .clocks import Clock, ClockOffset, fitted
from .events import Event, InvalidTrace, Trace, TracedCollective, TracedMessage, TracedProgram, TracedRank


def read(directory: Path, most: int | None = None) -> Trace:
    """Read a trace, or its last `most` events over all ranks; raise `InvalidTrace` if the directory has none."""
    try:
        there = recorded_ranks(directory)
        if not there:
            raise InvalidTrace(f"{directory}: no trace was found")
        return _read(directory, there[0], most)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, InvalidTrace):
            raise
        raise InvalidTrace(f"{directory}: it is not a trace directory ({type(error).__name__})") from None


def recorded_ranks(directory: Path) -> list[int]:
    """The ranks that have recorded events."""
    found = (re.fullmatch(r"rank-(\d+)\.jsonl", path.name) for path in directory.glob("rank-*.jsonl"))
    return sorted(number for number in (int(match[1]) for match in found if match) if _begun(directory, number))


def _begun(directory: Path, rank: int) -> bool:
    ring, meanings = events_path(directory, rank), meanings_path(directory, rank)
    if not (ring.exists() and ring.stat().st_size >= HEADER.size and meanings.exists()):
        return False
    with meanings.open() as file:
        return file.readline().endswith("\n")


def _read(directory: Path, lowest: int, most: int | None) -> Trace:
    first = _lines(meanings_path(directory, lowest))
    about = first[0]
    measured = defaultdict(list)
    for line in first:
        if "clock" in line:
            measured[line["clock"][0]].append(ClockOffset(*line["clock"]))
    ranks, rings, missing = {}, {}, []
    for number in range(about["ranks"]):
        if not _begun(directory, number):
            missing.append(number)
            continue
        ring, recorded = _ring(events_path(directory, number), most and most // about["ranks"])
        lines = _lines(
            meanings_path(directory, number)
        )  # after the ring, because a running rank writes meanings before events
        clock = fitted(measured[number]) if measured[number] else _unmeasured(lines[0], about)
        ranks[number] = TracedRank(number, lines[0], clock, recorded - len(ring))
        rings[number] = lines, ring
    begins = [ranks[n].clock.corrected(int(ring[0, 1])) for n, (_, ring) in rings.items() if len(ring)]
    for number, (lines, ring) in rings.items() if begins else ():
        _Sorter(ranks[number], lines, min(begins)).sort(ring)
    return Trace(ranks, missing, about["library"])


def _lines(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text().split("\n")
    return [json.loads(line) for line in lines[:-1]]  # what follows the last newline is incomplete


def _unmeasured(mine: dict[str, Any], first: dict[str, Any]) -> Clock:
    """The clock of a rank that was never measured, from the system clocks of the hosts, which may be wrong."""
    return Clock() if mine["host"] == first["host"] else Clock(first["wall"] - mine["wall"])


def _ring(path: Path, most: int | None) -> tuple[np.ndarray, int]:
    """The events that were kept, one per row, and the number of recorded events."""
    with path.open("rb") as file:
        (recorded,) = HEADER.unpack(file.read(HEADER.size))
        content = file.read()[: recorded * EVENT.size]  # the whole file if older events were overwritten
    fields = EVENT.size // 8
    rows = np.frombuffer(content, np.int64, len(content) // EVENT.size * fields).reshape(-1, fields)
    if most and len(rows) > most:  # by their ends: a collective ends after its steps and is kept with them
        rows = rows[np.argsort(rows[:, 2], kind="stable")][-most:]
    return rows[np.argsort(rows[:, 1], kind="stable")], recorded


class _Sorter:
    """Decodes the recorded numbers of one rank."""

    def __init__(self, rank: TracedRank, lines: list[dict[str, Any]], start: int) -> None:
        self._rank, self._start = rank, start
        self._meanings: dict[int, tuple[TracedProgram, int] | dict[str, str]] = {}
        self._threads: dict[int, int] = {}
        self._runs: dict[tuple[TracedProgram, int], TracedCollective] = {}
        for line in lines:
            if "collective" in line:
                program = _program(line)
                for position in range(len(program.steps) + 1):
                    self._meanings[line["number"] + position] = program, position
            elif "number" in line:
                self._meanings[line["number"]] = line

    def sort(self, ring: np.ndarray) -> None:
        """Sort the events into the lists of the rank."""
        for what, begin, end, run, thread in ring.tolist():
            begin, end = (self._rank.clock.corrected(time) - self._start for time in (begin, end))
            thread = self._threads.setdefault(thread, len(self._threads))
            meaning = self._meanings[what]
            if isinstance(meaning, dict):
                kind = "phase" if "phase" in meaning else "under_way"
                events = self._rank.phases if kind == "phase" else self._rank.under_way
                events.append(Event(meaning[kind], begin, end, thread))
            else:
                self._step(*meaning, run, begin, end, thread)
        for collective in self._runs.values():
            if not collective.finished:
                collective.begin = collective.steps[0].begin
                collective.end = max(step.end for step in collective.steps)
        self._rank.collectives.sort(key=lambda collective: collective.begin)

    def _step(self, program: TracedProgram, position: int, run: int, begin: int, end: int, thread: int) -> None:
        if (program, run) not in self._runs:
            self._runs[program, run] = TracedCollective(self._rank.number, program, run)
            self._rank.collectives.append(self._runs[program, run])
        collective = self._runs[program, run]
        if position == 0:
            collective.begin, collective.end, collective.thread, collective.finished = begin, end, thread, True
            return
        what, round, concerns = program.steps[position - 1]
        if what not in ("start", "wait") or concerns is None:
            collective.steps.append(Event(what, begin, end, thread, round, concerns))
            return
        message = program.messages[concerns]
        ends = (self._rank.number, message.peer)
        key = (*collective.key, *(ends if message.outgoing else ends[::-1]), message.ordinal)
        collective.steps.append(Event(what, begin, end, thread, round, message.nbytes, message, key))


def _program(line: dict[str, Any]) -> TracedProgram:
    """Decode a program, and number its messages in the order in which they start, as MPI matches them.

    Messages that never start are only waited for: what another rank writes to shared memory.
    """
    seen = Counter[tuple[bool, int]]()
    ordinals = {}
    for what, _, number in line["steps"]:
        if what in ("start", "wait") and number is not None and number not in ordinals:
            way = tuple(line["messages"][number][:2])
            ordinals[number] = seen[way]
            seen[way] += 1
    messages = [
        TracedMessage(outgoing, peer, nbytes, round, ordinals[number])
        for number, (outgoing, peer, nbytes, round) in enumerate(line["messages"])
    ]
    return TracedProgram(line["collective"], line["comm"], line["size"], line["bytes"], messages, line["steps"])
