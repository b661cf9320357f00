"""Describe the machines on which documents were measured.  No MPI is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Environment = Mapping[str, Any]
DISTURBED = 3.0  # the least ratio of a median to its minimum that other programs cause


def where(several: Iterable[Environment]) -> str:
    """Return the MPI library, ranks, hosts, CPU and GPU; environments that differ only in ranks share a line."""
    lines: dict[tuple[str, ...], list[int]] = {}
    for each in several:
        hosts = each["hosts"]
        names = ", ".join(map(str, hosts[:4])) + (", ..." if len(hosts) > 4 else "")
        on = f"{len(hosts)} host{'s' * (len(hosts) != 1)} ({names})"
        others = (str(each[key]) for key in ("cpu", "gpu") if each.get(key))
        lines.setdefault((each["mpi"], on, *others), []).append(each["ranks"])
    return "\n".join(
        " · ".join([mpi, f"{_ranks(ranks)} on {on}", *others]) for (mpi, on, *others), ranks in lines.items()
    )


def oversubscribed(several: Iterable[Environment]) -> str | None:
    """Return a warning if there are more ranks than cores, else None; an environment has the cores per host."""
    found: dict[int, list[int]] = {}
    for each in several:
        cores = each.get("cores")
        if isinstance(cores, int) and each["ranks"] > (total := cores * len(each["hosts"])):
            found.setdefault(total, []).append(each["ranks"])
    if not found:
        return None
    counts = [f"{_ranks(ranks)} on {total} core{'s' * (total != 1)}" for total, ranks in sorted(found.items())]
    return f"Warning: {', '.join(counts)}. Ranks wait for a core, and these times include that wait."


def alone(ranks: int) -> str | None:
    """Return a warning if there is only one rank, else None."""
    return "Warning: one rank sends no messages; start several ranks with mpiexec -n 4" if ranks == 1 else None


def disturbed(records: Iterable[Mapping[str, Any]]) -> str | None:
    """Return a warning if medians are several times the minima, else None."""
    noise = [each["median"] / each["min"] for each in records if each["median"] and each["min"]]
    many = [one for one in noise if one >= DISTURBED]
    if not many:
        return None
    return (
        f"Warning: {len(many)} of {len(noise)} medians are {DISTURBED:g} to {max(many):.1f} times their minima. Other "
        "programs probably disturb the ranks. Ratios are medians over pairs of calls, and may still be wrong."
    )


def _ranks(ranks: Iterable[int]) -> str:
    """Format the distinct numbers of ranks."""
    numbers = sorted(set(ranks))
    return f"{', '.join(map(str, numbers))} rank{'s' * (numbers != [1])}"
