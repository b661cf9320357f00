"""Which copies of the state to go on from, after ranks have failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .copies import Label


class Restart(NamedTuple):
    """The copies to use, and the step after which training goes on."""

    labels: frozenset[Label]
    step: int


def choose(found: Iterable[Label], lockstep: bool) -> Restart | None:
    """Choose from the copies on all ranks: the newest ones with which the parts of all owners are there.

    With `lockstep`, all parts must be of the same step.  Return None if parts are missing.
    """
    groups: dict[tuple[int, ...], list[Label]] = {}
    for label in found:
        groups.setdefault((label.build, label.step) if lockstep else (label.build,), []).append(label)
    for _, labels in sorted(groups.items(), reverse=True):
        newest: dict[int, Label] = {}
        for label in sorted(labels, key=lambda label: label.step):
            newest[label.owner] = label
        if newest.keys() >= set(labels[0].owners):
            return Restart(frozenset(newest.values()), min(label.step for label in newest.values()))
    return None


def missing(found: Sequence[Label]) -> list[int]:
    """The owners whose parts nobody has any more, as ranks of the communicator of the newest copies."""
    if not found:
        return []
    build = max(label.build for label in found)
    newest = [label for label in found if label.build == build]
    return sorted(set(newest[0].owners) - {label.owner for label in newest})
