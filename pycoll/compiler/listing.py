"""What one rank does in a collective, step by step: as lines of text, and as data for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .program import (
    DONE,
    READY,
    SCRATCH,
    Apply,
    Await,
    Collective,
    CopyBytes,
    Divide,
    FindPeers,
    Finish,
    Message,
    Post,
    Program,
    Ready,
    Region,
    Skip,
    Start,
    Step,
    Wait,
    peer_of,
)
from .slots import SlotProgram

_COUNTERS = {READY: "READY", DONE: "DONE"}


@dataclass(frozen=True)
class Listing:
    """The steps of one rank; `str()` returns one line for each.

    Attributes
    ----------
    title : str
        The collective, the algorithm and the rank.
    scratch : int
        The size of temporary memory in bytes.
    steps : list of dict
        The steps: ``do`` names a step, and the other items are its arguments.  A region of memory is a dict of
        ``buffer``, ``start`` and ``bytes``.
    """

    title: str
    scratch: int
    steps: list[dict[str, Any]]

    def __str__(self) -> str:
        width = len(str(len(self.steps)))
        lines = (f"{number:{width + 2}}  {_line(step)}" for number, step in enumerate(self.steps))
        return "\n".join([self.title, *lines])

    def as_json(self) -> dict[str, Any]:
        """Return the listing as an object for `json.dump`."""
        return {"title": self.title, "scratch": self.scratch, "steps": self.steps}


def listing(title: str, program: Program) -> Listing:
    """List the steps of a program."""
    steps = [_described(step, program.messages, ("input", "output")) for step in program.steps]
    return Listing(title, program.scratch, steps)


def slot_listing(title: str, program: SlotProgram) -> Listing:
    """List the steps of a program for slots.  Regions are relative to the piece of the vector of each turn."""
    steps = [
        {"turn": number, **_described(step, (), ("slot", "result"))}
        for number, turn in enumerate(program.turns)
        for step in turn
    ]
    return Listing(title, 0, steps)


_NAMES: dict[type, str] = {
    Wait: "wait",
    FindPeers: "find peers",
    Skip: "skip",
    Ready: "follow the GPU",
    Finish: "wait for the GPU",
}


def _described(step: Step, messages: Sequence[Message], peers: tuple[str, str]) -> dict[str, Any]:
    match step:
        case Start(number):
            message = messages[number]
            return {
                "do": "send" if message.outgoing else "receive",
                "peer": message.peer,
                "region": _region(message.region, peers),
                "message": number,
                "round": message.round + 1,
            }
        case Apply() | CopyBytes() | Divide():
            name = {Apply: "combine", CopyBytes: "copy", Divide: "divide"}[type(step)]
            return {"do": name, **{field: _region(region, peers) for field, region in step._asdict().items()}}
        case Post(counter):
            return {"do": "post", "counter": _COUNTERS[counter]}
        case Await(rank, counter):
            return {"do": "await", "rank": rank, "counter": _COUNTERS[counter]}
        case Collective(primitive, root):
            return {"do": "call MPI", "collective": primitive, "root": root}
    return {"do": _NAMES[type(step)], **step._asdict()}


def _region(region: Region, peers: tuple[str, str]) -> dict[str, Any]:
    if region.buffer <= SCRATCH:
        name = ("sendbuf", "recvbuf", "scratch")[region.buffer]
    else:
        rank, which = peer_of(region.buffer)
        name = f"{peers[which]} of rank {rank}"
    return {"buffer": name, "start": region.start, "bytes": region.size}


def _line(step: dict[str, Any]) -> str:
    words = {name: _words(value) for name, value in step.items()}
    match step["do"]:
        case "send" | "receive":
            way = "to" if step["do"] == "send" else "from"
            text = "{do} {region} {way} rank {peer} (message {message}, round {round})".format(way=way, **words)
        case "wait":
            text = "wait for message {message}".format(**words)
        case "combine":
            text = "{out} = {left} op {right}".format(**words)
        case "copy":
            text = "{to} = {source}".format(**words)
        case "divide":
            text = "{region} = {region} / ranks".format(**words)
        case "post":
            text = "post {counter}".format(**words)
        case "await":
            text = "wait until rank {rank} has posted {counter}".format(**words)
        case _:
            text = " ".join([step["do"], *(f"{name} {words[name]}" for name in step if name not in ("do", "turn"))])
    return f"turn {step['turn']}: {text}" if "turn" in step else text


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return "{buffer}[{start}:{end}]".format(end=value["start"] + value["bytes"], **value)
    return str(value)
