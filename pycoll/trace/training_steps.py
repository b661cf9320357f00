"""Finds the training steps of a trace by the phases that drivers record."""

from __future__ import annotations

from .events import InvalidTrace, Rank, Trace

LAST_PHASES = ("pull", "optimizer")  # a step ends with the first of these that any rank recorded


def interval(trace: Trace, first: int, last: int) -> tuple[int, int]:
    """When the steps `first` to `last` began on the first rank and ended on the last one, in ns.

    The steps that were kept are numbered from 1.  `InvalidTrace` if they are not in the trace.
    """
    recorded = {phase.what for rank in trace.ranks.values() for phase in rank.phases}
    name = next((name for name in LAST_PHASES if name in recorded), None)
    if name is None:
        raise InvalidTrace(f"there are no steps: no phase {' or '.join(map(repr, LAST_PHASES))} was recorded")
    ranks = [steps for rank in trace.ranks.values() if (steps := _steps(rank, name))]
    count = min(map(len, ranks))
    if last > count:
        raise InvalidTrace(f"steps {first}-{last}: the trace has steps 1 to {count}")
    return min(steps[first - 1][0] for steps in ranks), max(steps[last - 1][1] for steps in ranks)


def _steps(rank: Rank, last_phase: str) -> list[tuple[int, int]]:
    """The begin and end of each step of a rank: from the first phase after a step to its last phase."""
    steps, begin = [], None
    for phase in sorted(rank.phases, key=lambda phase: phase.begin):
        begin = phase.begin if begin is None else begin
        if phase.what == last_phase:
            steps.append((begin, phase.end))
            begin = None
    return steps
