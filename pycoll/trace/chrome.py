"""A trace as Chrome trace JSON, for https://ui.perfetto.dev: a process for each rank, arrows for messages.

The format is documented in "Trace Event Format", Google, 2016.  Calls of a rank and their steps are nested on one
track.  Collectives, messages and buckets in flight have tracks of their own.
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import IO, Any

from ..base.files import write_atomically
from .events import Event, Trace, TracedCollective, TracedRank

Json = dict[str, Any]


def export(trace: Trace, path: Path, like: Path | None = None) -> None:
    """Write a trace to a file, with times in µs; a new file has the mode of the file `like`."""
    write_atomically(path, lambda file: _TraceWriter(file).write(trace), like)


class _TraceWriter:
    """Writes a document with one event per line."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._separator = b""
        self._ids = count(1)
        self._pid = 0
        self._taken: dict[tuple[Any, ...], tuple[int, Event]] = {}  # received messages: the rank, and its wait
        self._encode = json.JSONEncoder(separators=(",", ":")).encode

    def write(self, trace: Trace) -> None:
        """Write all events."""
        about = {
            "library": trace.library,
            "missing ranks": trace.missing,
            "dropped events": {rank.number: rank.dropped for rank in trace.ranks.values()},
        }
        self._file.write(f'{{"displayTimeUnit": "ns", "otherData": {json.dumps(about)}, "traceEvents": [\n'.encode())
        for rank in trace.ranks.values():
            self._rank(rank)
        for rank in trace.ranks.values():
            self._messages(rank)
        self._file.write(b"\n]}\n")

    def _put(self, ph: str, **event: Any) -> None:
        self._file.write(self._separator + self._encode({"ph": ph, **event}).encode())
        self._separator = b",\n"

    def _rank(self, rank: TracedRank) -> None:
        self._pid = rank.number
        self._name("process", f"rank {rank.number} on {rank.about['host']}", 0)
        self._put("M", name="process_sort_index", pid=self._pid, tid=0, args={"sort_index": rank.number})
        threads = {event.thread for event in (*rank.phases, *rank.steps())}
        names = {thread: f"thread {thread}" if thread else "calls" for thread in threads}
        for thread, name in (rank.about.get("threads") or names).items():
            self._name("thread", name, thread)
        for phase in sorted(rank.phases, key=lambda phase: (phase.begin, -phase.end)):  # outer ones first
            self._span("phase", phase.what, phase.begin, phase.end, phase.thread)
        for event in rank.under_way:
            self._under_way("phase", event.what, event.begin, event.end)
        for collective in rank.collectives:
            self._collective(collective)

    def _name(self, what: str, name: str, tid: int) -> None:
        self._put("M", name=f"{what}_name", pid=self._pid, tid=tid, args={"name": name})

    def _collective(self, collective: TracedCollective) -> None:
        primitive, _, algorithm = collective.name.partition(".")
        about: Json = {"primitive": primitive, "algorithm": algorithm, "bytes": collective.program.nbytes}
        if not collective.finished:
            about["finished"] = False
        rounds = [(f"round {number + 1}", *times) for number, times in collective.rounds().items()]
        if collective.blocks:
            self._span("collective", collective.name, collective.begin, collective.end, collective.thread, **about)
            for name, begin, end in rounds:
                self._span("round", name, begin, end, collective.thread)
        else:
            number = self._under_way("collective", collective.name, collective.begin, collective.end, **about)
            for name, begin, end in rounds:
                self._under_way("collective", name, begin, end, number)
        for step in collective.steps:
            self._span("step", label(step), step.begin, step.end, step.thread, **_details(step))
            if step.key and step.what == "wait" and step.message and not step.message.outgoing:
                self._taken[step.key] = collective.rank, step

    def _messages(self, rank: TracedRank) -> None:
        """The messages that a rank sent, with an arrow to the receiver if it recorded them."""
        self._pid = rank.number
        for start in rank.steps():
            if start.what == "start" and start.key and start.message and start.message.outgoing:
                to, end = self._taken.get(start.key, (rank.number, start))
                self._under_way("message", f"to {start.message.peer}", start.begin, end.end, **_details(start))
                if end is not start:
                    self._arrow(rank.number, start, to, end)

    def _arrow(self, source: int, start: Event, to: int, end: Event) -> None:
        """Draw an arrow from a send to the end of the matching wait.

        An arrow joins the spans at its ends, and Perfetto lets it point to the span that began later.  The wait may
        have begun before the send, so its last nanosecond becomes a span of its own.
        """
        same = {"cat": "message", "name": "message", "id": next(self._ids)}
        last = max(end.begin, end.end - 1)
        self._span("message", f"from {source}", last, end.end, end.thread, to, **_details(end))
        self._put("s", **same, ts=start.begin / 1e3, pid=source, tid=start.thread)
        self._put("f", **same, ts=last / 1e3, pid=to, tid=end.thread, bp="e")

    def _span(self, cat: str, name: str, begin: int, end: int, tid: int, pid: int | None = None, **args: Any) -> None:
        times = {"ts": begin / 1e3, "dur": (end - begin) / 1e3}
        self._put("X", cat=cat, name=name, **times, pid=self._pid if pid is None else pid, tid=tid, args=args)

    def _under_way(self, cat: str, name: str, begin: int, end: int, number: int | None = None, **args: Any) -> int:
        number = number or next(self._ids)
        same = {"cat": cat, "name": name, "id2": {"local": f"{number:#x}"}, "pid": self._pid, "tid": 0}
        self._put("b", ts=begin / 1e3, **same, args=args)
        self._put("e", ts=end / 1e3, **same)
        return number


def label(step: Event) -> str:
    """A short description of a step."""
    if not step.message:
        return step.what
    verb = {"start": ("receive", "send"), "wait": ("wait", "wait")}[step.what][step.message.outgoing]
    way = "to" if step.message.outgoing else "from"
    return f"{verb} {way} {step.message.peer}"


def _details(step: Event) -> Json:
    about: Json = {"round": step.round + 1}
    if step.nbytes is not None:
        about["bytes"] = step.nbytes
    return about | ({"peer": step.message.peer} if step.message else {})
