"""Group records into curves, by algorithm and size, and find the fastest algorithm.  No MPI is needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import log
from typing import Any

from pycoll.tune.options import size_label

Document = dict[str, Any]
Record = dict[str, Any]
Variant = tuple[Any, ...]  # a primitive and the values of the keys in VARIES
Curves = dict[str, dict[int, Record]]  # algorithm -> size in bytes -> record
MPI = "MPI"  # the name of the native MPI collective in reports
OTHERS = (MPI, "auto", "native", "staged")  # not algorithms of pycoll, or algorithms under another name
VARIES = ("place", "form", "arguments", "datatype", "op", "root")
CLOSE = 1.05  # the largest ratio to the fastest median that counts as equally fast
TITLES = {"place": "{} place", "arguments": "{} arguments", "root": "root {}"}


def variants(documents: Iterable[Document], primitives: Sequence[str] = ()) -> dict[Variant, str]:
    """Return the variants that were measured in any document, with titles just long enough to be distinct."""
    found = dict.fromkeys(
        (record["primitive"], *(record.get(key) for key in VARIES))
        for document in documents
        for record in document["records"]
        if not primitives or record["primitive"] in primitives
    )
    titles = {}
    for variant in found:
        beside = [other for other in found if other[0] == variant[0]]
        parts = [str(variant[0])]
        for column, key in enumerate(VARIES, 1):
            if variant[column] is not None and len({other[column] for other in beside}) > 1:
                parts.append(TITLES.get(key, "{}").format(variant[column]).replace("out place", "out of place"))
        titles[variant] = ", ".join(parts)
    return titles


def curves(document: Document, variant: Variant) -> Curves:
    """Return the records of a variant by algorithm and size, MPI last.

    Without records for MPI, its times are taken from the key ``native`` of the other records.
    """
    found: Curves = {}
    beside: dict[int, Record] = {}
    for record in sorted(document["records"], key=lambda record: record["bytes"]):
        if (record["primitive"], *(record.get(key) for key in VARIES)) != variant:
            continue
        found.setdefault(record["algorithm"], {})[record["bytes"]] = record
        if record.get("native") and record["median"]:
            busbw = (record["busbw"] or 0) * record["median"] / record["native"]
            unknown = dict.fromkeys(("min", "p99", "wrong"))
            beside.setdefault(record["bytes"], {**record, **unknown, "median": record["native"], "busbw": busbw})
    own = found.pop("mpi", None) or beside
    return {**found, MPI: own} if own else found


def fastest(found: Curves, size: int, among: Iterable[str] | None = None) -> str | None:
    """Return the algorithm with the lowest time at a size; None if there is none.

    Algorithms with wrong results are excluded.  The default candidates are all algorithms of pycoll.
    """
    names = [name for name in found if name not in OTHERS] or ["auto"] if among is None else among
    right = {name: found[name][size] for name in names if size in found.get(name, {})}
    timed = {name: comparable(record) for name, record in right.items() if record["median"] and not record.get("wrong")}
    return min(timed, key=timed.__getitem__) if timed else None


def standouts(several: Sequence[Curves], most: int) -> list[str]:
    """Return at most `most` algorithms of pycoll that together are nearly as fast as the fastest one at every size."""
    points = []
    for found in several:
        for size in sizes_of(found):
            right = {name: found[name][size] for name in found if name not in OTHERS and size in found[name]}
            timed = {name: comparable(each) for name, each in right.items() if each["median"] and not each.get("wrong")}
            if timed:
                points.append(timed)

    def loss(chosen: Sequence[str]) -> float:
        medians = ([timed[name] for name in chosen if name in timed] or [max(timed.values())] for timed in points)
        return sum(log(min(each) / min(timed.values())) for each, timed in zip(medians, points))

    names = list(dict.fromkeys(name for timed in points for name in timed))
    chosen: list[str] = []
    while names and len(chosen) < most:
        following = min(names, key=lambda name: loss([*chosen, name]))
        if chosen and loss(chosen) - loss([*chosen, following]) < 0.01 * len(points):  # gains less than one percent
            break
        chosen.append(following)
        names.remove(following)
    return chosen


def comparable(record: Record) -> float:
    """Return a time that can be compared with those of other calls of the point: that of MPI, divided by the ratio.

    Without MPI, it is the median.
    """
    native, against = record.get("native"), record.get("ratio")
    return float(native / against if native and against else record["median"])


def ratio(found: Curves, name: str, size: int) -> float | None:
    """Return the time of MPI divided by the time of an algorithm; None if either is missing, or for MPI itself.

    The ratio to the time of MPI measured alternately with the algorithm is preferred to the median in the MPI record.
    """
    record, own = found[name][size], found.get(MPI, {}).get(size, {})
    if record.get("native") and record.get("ratio") and name != MPI:
        return float(record["ratio"])
    native = record.get("native") or own.get("median")
    return native / record["median"] if native and record["median"] and name != MPI else None


def sizes_of(*several: Curves) -> list[int]:
    """Return all sizes in ascending order."""
    return sorted({size for found in several for records in found.values() for size in records})


def ranges(found: Curves) -> list[Record]:
    """Return the fastest algorithm of pycoll in each range of sizes, and its speed relative to MPI.

    A range continues while its algorithm is as fast as the fastest one, up to the factor CLOSE.
    """
    best: list[tuple[int, str]] = []
    for size in sizes_of(found):
        if name := fastest(found, size):
            before = best[-1][1] if best else name
            best.append((size, before if _is_close(found, before, name, size) else name))
    rows = []
    for name, run in groupby(best, key=lambda pair: pair[1]):
        sizes = [size for size, _ in run]
        ratios = [against for size in sizes if (against := ratio(found, name, size))]
        rows.append(
            {
                "sizes": _between([size_label(sizes[0]), size_label(sizes[-1])]) if sizes[0] else None,
                "fastest": name,
                "ratio": _between([f"{bound:.2f}" for bound in (min(ratios), max(ratios))]) if ratios else None,
            }
        )
    return rows


def _is_close(found: Curves, name: str, best: str, size: int) -> bool:
    """Return whether the results of an algorithm are right at a size, and its time is close to the best one."""
    record = found[name].get(size)
    if record is None or record["median"] is None or record.get("wrong"):
        return False
    return bool(comparable(record) <= CLOSE * comparable(found[best][size]))


def _between(bounds: Sequence[str]) -> str:
    """Format two bounds as a range, or as one value if they are equal."""
    return " to ".join(dict.fromkeys(bounds))
