"""A trace as Chrome trace JSON, for https://ui.perfetto.dev: a process for each rank, arrows for messages.

The format: "Trace Event Format", Google, 2016.  What a rank does in its calls nests on its track; collectives, messages
and buckets that are under way meanwhile have tracks of their own.
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

from ..files import write_atomically
from .events import Collective, Event, Message, Rank, Trace

Json = dict[str, Any]


def export(trace: Trace, path: Path) -> None:
    """Write it into a file."""
    document = chrome(trace)
    events = ",\n".join(map(json.dumps, document.pop("traceEvents")))  # one a line
    text = f'{json.dumps(document)[:-1]}, "traceEvents": [\n{events}\n]}}\n'
    write_atomically(path, lambda file: file.write(text.encode()))


def chrome(trace: Trace) -> Json:
    """The document; times are in µs."""
    writer = _Writer()
    for rank in trace.ranks.values():
        writer.rank(rank)
    writer.arrows()
    about = {
        "library": trace.library,
        "missing ranks": trace.missing,
        "dropped events": {rank.number: rank.dropped for rank in trace.ranks.values()},
    }
    return {"displayTimeUnit": "ns", "otherData": about, "traceEvents": writer.events}


class _Writer:
    def __init__(self) -> None:
        self.events: list[Json] = []
        self._ids = count(1)
        self._halves: dict[tuple, dict[bool, Json]] = {}  # of messages: where the arrow begins, and where it ends

    def rank(self, rank: Rank) -> None:
        """All events of one rank."""
        self._pid = rank.number
        self._name("process", f"rank {rank.number} on {rank.about['host']}", 0)
        for thread in {event.thread for event in (*rank.phases, *rank.steps())}:
            self._name("thread", f"thread {thread}" if thread else "calls", thread)
        for phase in rank.phases:
            self._span("phase", phase.what, phase.begin, phase.end, phase.thread)
        for event in rank.under_way:
            self._under_way("phase", event.what, event.begin, event.end)
        for collective in rank.collectives:
            self._collective(collective)

    def _name(self, what: str, name: str, tid: int) -> None:
        self.events.append({"ph": "M", "name": f"{what}_name", "pid": self._pid, "tid": tid, "args": {"name": name}})

    def _collective(self, collective: Collective) -> None:
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
        self._messages(collective)

    def _messages(self, collective: Collective) -> None:
        starts = {step.key: step for step in collective.steps if step.what == "start"}
        for step in collective.steps:
            if step.what == "wait" and step.message and step.key and step.key in starts:
                message, start = step.message, starts[step.key]
                name = f"{'to' if message.outgoing else 'from'} {message.peer}"
                self._under_way("message", name, start.begin, step.end, **_details(step))
                place = start.begin if message.outgoing else step.end
                end = {"ts": place / 1e3, "pid": self._pid, "tid": (start if message.outgoing else step).thread}
                self._halves.setdefault(step.key, {})[message.outgoing] = end

    def _span(self, cat: str, name: str, begin: int, end: int, tid: int, **args: Any) -> None:
        times = {"ts": begin / 1e3, "dur": (end - begin) / 1e3}
        self.events.append({"ph": "X", "cat": cat, "name": name, **times, "pid": self._pid, "tid": tid, "args": args})

    def _under_way(self, cat: str, name: str, begin: int, end: int, number: int | None = None, **args: Any) -> int:
        number = number or next(self._ids)
        same = {"cat": cat, "name": name, "id": number, "pid": self._pid, "tid": 0}
        self.events.append({"ph": "b", "ts": begin / 1e3, **same, "args": args})
        self.events.append({"ph": "e", "ts": end / 1e3, **same})
        return number

    def arrows(self) -> None:
        """From where messages were sent to where they were taken."""
        for halves in self._halves.values():
            if len(halves) == 2:
                same = {"cat": "message", "name": "message", "id": next(self._ids)}
                self.events.append({"ph": "s", **same, **halves[True]})
                self.events.append({"ph": "f", "bp": "e", **same, **halves[False]})


def label(step: Event) -> str:
    """What a step does, in words."""
    if not step.message:
        return step.what
    verb = {"start": ("receive", "send"), "wait": ("wait", "wait")}[step.what][step.message.outgoing]
    way = "to" if step.message.outgoing else "from"
    return f"{verb} {way} {step.message.peer}"


def _details(step: Event) -> Json:
    message: Message | None = step.message
    about: Json = {"round": step.round + 1}
    if step.nbytes is not None:
        about["bytes"] = step.nbytes
    return about | ({"peer": message.peer} if message else {})
