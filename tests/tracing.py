"""Helpers that read traces and check invariants of every trace."""

import json
from collections import defaultdict
from pathlib import Path

from pycoll.trace.reading import read


def whole(directory):
    """Return the events of a trace; check its invariants.

    Spans nest on each track.  Every arrow has both ends, and does not go back in time by more than the error of the
    clocks.
    """
    events = json.loads((Path(directory) / "trace.json").read_text())["traceEvents"]
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin = round(1e3 * event["ts"])
            tracks[event["pid"], event["tid"]].append((begin, -begin - round(1e3 * event["dur"]), event["name"]))
    for spans in tracks.values():
        inside = []
        for begin, end, name in sorted(spans):
            while inside and -inside[-1][1] <= begin:
                inside.pop()
            assert not inside or -end <= -inside[-1][1], f"{name} ends after {inside[-1][2]}, in which it began"
            inside.append((begin, end, name))
    assert sorted(ids(events, "s")) == sorted(ids(events, "f"))
    assert sorted(ids(events, "b")) == sorted(ids(events, "e"))
    sent = {event["id"]: event["ts"] for event in events if event["ph"] == "s"}
    measured = [one for rank in read(Path(directory)).ranks.values() for one in rank.clock.measured]
    error = 2e-3 * max((one.error for one in measured), default=0)
    back = [event for event in events if event["ph"] == "f" and event["ts"] + error < sent[event["id"]]]
    assert not back, f"{len(back)} of {len(sent)} arrows go back in time, for example {back[0]}"
    return events


def ids(events, ph):
    return [event.get("id", event.get("id2", {}).get("local")) for event in events if event["ph"] == ph]


def arrows(events):
    """Return the innermost spans in which each arrow begins and ends, as (begin, rank, name)."""
    ends = {}
    for event in events:
        if event["ph"] in "sf":
            track, at = (event["pid"], event["tid"]), event["ts"]
            around = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == track]
            inner = max((e for e in around if e["ts"] <= at < e["ts"] + e["dur"]), key=lambda e: (e["ts"], -e["dur"]))
            ends[event["id"], event["ph"]] = inner["ts"], inner["pid"], inner["name"]
    return [(ends[number, "s"], ends[number, "f"]) for number in ids(events, "s")]


def named(events, cat, ph, pid):
    """Return the names of the events of one rank that have category `cat` and phase `ph`."""
    return [e["name"] for e in events if e["ph"] == ph and e["pid"] == pid and e.get("cat") == cat]


def sent(events, pid):
    """Return the size in bytes of each message that a rank sent."""
    found = [e for e in events if e["ph"] == "b" and e["pid"] == pid and e["cat"] == "message"]
    return [e["args"]["bytes"] for e in found if e["name"].startswith("to ")]
