"""A simulated step as a trace, for https://ui.perfetto.dev and for the timeline of `pycoll.trace`."""

from __future__ import annotations

from pathlib import Path

from ...base.files import write_text
from ...compiler.program import BLOCKING
from ...runtime.recording.recorder import TAG_BITS
from ...trace.chrome import export
from ...trace.clocks import Clock
from ...trace.events import Event, Trace, TracedCollective, TracedProgram, TracedRank
from ...trace.timeline import timeline
from .groups import Groups
from .stage import DATA, PIPELINE, STREAMS, TENSOR, Span, Stage
from .step import Step

FORMATS = ".json", ".svg"


def write(step: Step, groups: Groups, path: Path) -> None:
    """Write a file in one of `FORMATS`: in JSON, each stream of a stage has a track of its own."""
    if path.suffix == ".json":
        export(traced(step, groups, tracks=True), path)
    else:
        write_text(path, timeline(traced(step, groups, tracks=False)))


def traced(step: Step, groups: Groups, tracks: bool) -> Trace:
    """Return a trace of the first rank of each stage; without `tracks`, overlapped collectives are in flight."""
    ranks = [_rank(stage, groups, tracks) for stage in step.stages]
    return Trace({rank.number: rank for rank in ranks}, [], "simulated")


def _rank(stage: Stage, groups: Groups, tracks: bool) -> TracedRank:
    number = stage.number * (groups.stride("pp") if "pp" in groups.mesh else 0)
    where = f"host {groups.hosts[number]}, stage {stage.number}"
    rank = TracedRank(number, {"host": where, "threads": dict(enumerate(STREAMS))}, Clock())
    for order, span in enumerate(stage.spans):
        begin, end, thread = round(span.begin * 1e9), round(span.end * 1e9), STREAMS.index(span.stream)
        if span.stream in (TENSOR, DATA):
            blocking = BLOCKING << TAG_BITS if tracks or span.stream == TENSOR else 0
            program = _program(span, groups)
            rank.collectives.append(TracedCollective(number, program, blocking + order, begin, end, thread, True))
        elif tracks or span.stream != PIPELINE:
            rank.phases.append(Event(span.name, begin, end, thread))
        else:
            rank.under_way.append(Event(span.name, begin, end, thread))
    return rank


def _program(span: Span, groups: Groups) -> TracedProgram:
    axis = "tp" if span.stream == TENSOR else "fsdp" if "fsdp" in groups.mesh else "dp"
    return TracedProgram(span.name, axis, groups.size(axis), span.nbytes or 0, [], [])
