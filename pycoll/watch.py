"""Print where each rank of a job is: ``python -m pycoll.watch DIRECTORY``.

The job runs with ``PYCOLL_WATCH=DIRECTORY``, a directory that all hosts can write.  For each communicator, a table says
how many collectives each rank has called, which was the last one, and whether the rank is still in it.  Then the ranks
are named that never came to a collective in which others wait.  The job may be running, hung or dead.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import signal
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tabulate import tabulate  # type: ignore[import-untyped, unused-ignore]

from .base.command_line import Parser, in_words
from .base.numbers import ranks_named
from .runtime.recording.roll_call import (
    ENDED,
    FIELDS,
    STACKS,
    birth,
    calls_path,
    condition,
    now,
    stacks_path,
)

PAUSE = 0.5  # seconds between two looks at a job, and until stacks are written

ALIVE = "running", "stopped"


class CallState(NamedTuple):
    """Where a rank is on a communicator; times are in ns since 1970."""

    calls: int  # collectives called, including those in flight
    call: str  # the last one
    inside: bool  # whether the rank is still in it
    entered: int
    waits: str  # the collective in flight that it waits for
    since: int


class WatchedRank(NamedTuple):
    """What the files of a rank say."""

    rank: int
    ranks: int  # of the job
    host: str
    pid: int
    state: str  # "running", "stopped" by a signal, "ended" by itself, "killed", or "unknown" on another host
    states: dict[str, CallState]  # by the names of communicators; "" for those before their first call is complete
    members: dict[str, tuple[int, ...]]  # the ranks of communicators, in COMM_WORLD


def read(directory: Path) -> list[WatchedRank]:
    """Read the files of all ranks.

    Parameters
    ----------
    directory : Path
        The value of ``PYCOLL_WATCH``.

    Returns
    -------
    list of WatchedRank
        The ranks that have written files, in ascending order.

    Raises
    ------
    FileNotFoundError
        If there are no files.
    """
    begun = [path for path in directory.glob("rank-*.names") if "\n" in path.read_text()]  # else it is being created
    paths = sorted(begun, key=lambda path: int(path.stem.removeprefix("rank-")))
    if not paths:
        raise FileNotFoundError(f"{directory} has no files of ranks: run the job with PYCOLL_WATCH={directory}")
    found = [_read_rank(directory, path) for path in paths]
    return [one for one in found if one.rank < found[0].ranks]  # others are of an earlier job


def _read_rank(directory: Path, path: Path) -> WatchedRank:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    about = lines[0]
    names = {line["number"]: line["name"] for line in lines if "number" in line} | {0: ""}
    positions = {"": 1} | {line["communicator"]: line["slot"] for line in lines if "communicator" in line}
    members = {line["communicator"]: tuple(line["ranks"]) for line in lines if "communicator" in line}
    with calls_path(directory, about["rank"]).open("rb") as file:
        numbers = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)).cast("q")
    states = {}
    for name, at in positions.items():
        turns, call, entered, waits, since = numbers[at : at + FIELDS]
        calls, inside = (turns + 1) // 2, turns % 2 == 1
        if name or inside:
            states[name] = CallState(calls, names.get(call, "?"), inside, entered, names.get(waits, "?"), since)
    return WatchedRank(
        about["rank"], about["ranks"], about["host"], about["pid"], _state(about, numbers[0]), states, members
    )


def _state(about: dict[str, object], written: int) -> str:
    if written == ENDED:
        return "ended"
    if about["host"] != socket.gethostname():
        return "unknown"
    pid = int(str(about["pid"]))
    if birth(pid) != about["born"]:
        return "killed"
    return {"T": "stopped", "Z": "killed"}.get(condition(pid), "running")


def report(ranks: Sequence[WatchedRank], at: int) -> str:
    """Return the roll call in words, for a time in ns since 1970."""
    total = ranks[0].ranks
    parts = [f"{total} ranks: {_counted(ranks)}"]
    if absent := sorted(set(range(total)) - {rank.rank for rank in ranks}):
        parts.append(f"No files of {ranks_named(absent)}: no collective was called, or their hosts write elsewhere.")
    by_name = defaultdict(list)
    for rank in ranks:
        for name, state in rank.states.items():
            by_name[name].append((rank, state))
    for name, found in by_name.items():
        parts.append(_on_communicator(name, found, at))
    return "\n\n".join(parts)


def _counted(ranks: Sequence[WatchedRank]) -> str:
    states = defaultdict(list)
    for rank in ranks:
        states[rank.state].append(rank.rank)
    return ", ".join(f"{state}: {ranks_named(members)}" for state, members in states.items())


def _on_communicator(name: str, found: Sequence[tuple[WatchedRank, CallState]], at: int) -> str:
    members = found[0][0].members.get(name, ())
    whole = members == tuple(range(found[0][0].ranks))
    title = "COMM_WORLD, or a duplicate" if whole else f"the communicator of {ranks_named(members)}"
    title = f"On {title} ({name}):" if name else "On a communicator in its first call:"
    rows = [
        (rank.rank, state.calls if name else "", state.call, *_doing(state, at), rank.host, rank.state)
        for rank, state in found
    ]
    table = tabulate(rows, ["rank", "calls", "last call", "where", "seconds", "host", "state"], floatfmt=".1f")
    return "\n".join([title, str(table), *_missing(found)])


def _doing(state: CallState, at: int) -> tuple[str, float]:
    if state.waits:
        return f"waits for {state.waits}", (at - state.since) / 1e9
    return "in it" if state.inside else "after it", (at - state.entered) / 1e9


def _missing(found: Sequence[tuple[WatchedRank, CallState]]) -> list[str]:
    """Say who never came to the call in which others are."""
    lines = []
    by_call: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank, state in found:
        by_call[state.calls][state.call].append(rank.rank)
    last = max(by_call)
    for number, kinds in by_call.items():
        if len(kinds) > 1:
            what = ", ".join(f"{kind} on {ranks_named(members)}" for kind, members in kinds.items())
            lines.append(f"Call {number} is not the same collective on all ranks: {what}.")
    absent = defaultdict(list)  # the ranks that are in no call
    for rank, state in found:
        if state.calls < last and not state.inside and not state.waits:
            absent[state.calls + 1].append(rank.rank)
    for number, members in absent.items():
        ranks, known = ranks_named(members), " or ".join(by_call.get(number, ()))
        lines.append(f"{ranks.capitalize()} never came to call {number}{known and f' ({known})'}.")
    return lines


def stacks(directory: Path, ranks: Sequence[WatchedRank]) -> str:
    """Return the Python stacks of the ranks of this host that have not ended."""
    before = {}
    for rank in (each for each in ranks if each.state in ALIVE):
        before[rank.rank] = stacks_path(directory, rank.rank).stat().st_size
        _signal(rank, STACKS)
    time.sleep(PAUSE)
    texts = []
    for number, size in before.items():
        text = stacks_path(directory, number).read_bytes()[size:].decode(errors="replace")
        texts.append(f"Rank {number}:\n{text.rstrip() or 'no answer: the process is stopped'}")
    return "\n\n".join(texts)


def _signal(rank: WatchedRank, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
        os.kill(rank.pid, number)


def supervise(directory: Path, seconds: float) -> int:
    """Wait until all ranks have ended; if none has moved for some seconds, report and kill those of this host.

    Returns
    -------
    int
        0 if all ranks have ended by themselves, otherwise 1.
    """
    before: list[WatchedRank] = []
    moved = time.monotonic()
    while True:
        with contextlib.suppress(FileNotFoundError):  # the job has not begun
            ranks = read(directory)
            if all(rank.state in ("ended", "killed") for rank in ranks):
                return int(any(rank.state == "killed" for rank in ranks))
            if ranks != before:
                before, moved = ranks, time.monotonic()
        if before and time.monotonic() - moved > seconds:
            break
        time.sleep(PAUSE)
    print(report(before, now()), stacks(directory, before), sep="\n\n")
    print(f"\nNo rank has moved for {seconds:g} s: the job is ended.", flush=True)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for rank in read(directory):
            if rank.state in ALIVE:
                _signal(rank, number)
        time.sleep(PAUSE)
    return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and print the roll call."""
    parser = Parser(
        prog="python -m pycoll.watch", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="the value of PYCOLL_WATCH")
    parser.add_argument("--stacks", action="store_true", help="also print the Python stacks of the ranks of this host")
    parser.add_argument(
        "--end-after",
        type=float,
        metavar="SECONDS",
        help="wait until the job ends; if no rank enters or leaves a collective for SECONDS, print the roll call with "
        "stacks, and kill the ranks of this host",
    )
    options = parser.parse_args(arguments)
    if options.end_after is not None and not options.end_after > 0:
        parser.error(f"--end-after {options.end_after:g} is not a positive number of seconds")
    try:
        if options.end_after:
            return supervise(options.directory, options.end_after)
        ranks = read(options.directory)
    except OSError as error:
        parser.error(in_words(error))
    print(report(ranks, now()))
    if options.stacks:
        print(f"\n{stacks(options.directory, ranks)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
