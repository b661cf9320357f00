"""Finds the training steps of a trace by the phases that drivers record."""

from __future__ import annotations

from .events import InvalidTrace, Trace, TracedRank

LAST_PHASES = ("pull", "optimizer")  # a step ends with the first of these that any rank recorded


def interval(trace: Trace, first: int, last: int) -> tuple[int, int]:
    """When the steps `first` to `last` began on the first rank and ended on the last one, in ns.

    The steps that were kept are numbered from 1.  `InvalidTrace` if they are not in the trace.
    """
    steps = training_steps(trace)
    if not steps:
        raise InvalidTrace(f"there are no steps: no phase {' or '.join(map(repr, LAST_PHASES))} was recorded")
    if last > len(steps):
        raise InvalidTrace(f"steps {first}-{last}: the trace has steps 1 to {len(steps)}")
    return steps[first - 1][0], steps[last - 1][1]


def training_steps(trace: Trace) -> list[tuple[int, int]]:
    """When each step began on the first rank and ended on the last one, in ns; [] if no driver recorded steps."""
    recorded = {phase.what for rank in trace.ranks.values() for phase in rank.phases}
    name = next((name for name in LAST_PHASES if name in recorded), None)
    if name is None:
        return []
    ranks = [steps for rank in trace.ranks.values() if (steps := _steps(rank, name))]
    return [(min(begin for begin, _ in step), max(end for _, end in step)) for step in zip(*ranks)]


def _steps(rank: TracedRank, last_phase: str) -> list[tuple[int, int]]:
    """The begin and end of each step of a rank: from the first phase after a step to its last phase."""
    steps, begin = [], None
    for phase in sorted(rank.phases, key=lambda phase: phase.begin):
        begin = phase.begin if begin is None else begin
        if phase.what == last_phase:
            steps.append((begin, phase.end))
            begin = None
    return steps
