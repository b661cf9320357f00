"""Write a report of result files: ``python -m pycoll.bench.report RESULTS.json ... -o DIR``.  No MPI is needed.

Files that differ only in the number of ranks are also plotted against ranks.  Among files with the same ranks and MPI,
the first is compared with each of the others, as before and after.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pycoll.base.command_line import Parser, in_words, say_written
from pycoll.base.files import write_bytes

from .curves import Document, curves, variants
from .machine import disturbed, oversubscribed
from .markdown import before_after, by_algorithm, environments, fastest_by_size
from .page import Block, render
from .plots.document import plot_by_ranks, plots_of
from .results import FORMAT, VERSION

ENVIRONMENT: dict[str, Any] = {"ranks": int, "hosts": list, "mpi": str, "cpu": str}  # required keys and their types
RECORD: dict[str, Any] = {"primitive": str, "algorithm": str, "bytes": int}
RECORD |= dict.fromkeys(("median", "busbw", "native", "min", "p99"), (float, int, type(None)))
LEGEND = (
    "Each cell shows the median time in µs. The number in parentheses is the time of MPI divided by this time: "
    "above 1, the algorithm is faster than MPI. ★ marks the fastest of a row, and WRONG marks incorrect results; "
    "ok marks results checked but not timed. auto is the algorithm that pycoll chooses by default. A range of sizes "
    "continues while its algorithm is within 5% of the fastest."
)


class Refused(ValueError):
    """Raised for a file that is not a result file; the message has the file name and the reason."""


def load(path: Path) -> Document:
    """Read a result file; raise `Refused` if this program cannot read it."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=str)  # do not accept NaN as a number
    except OSError as error:
        raise Refused(in_words(error)) from None
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path}: broken JSON: {error}") from None
    if reason := _flaw(document):
        raise Refused(f"{path}: {reason}")
    return document


def _flaw(document: Any) -> str | None:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return "not a result of python -m pycoll.bench"
    if document.get("version") != VERSION:
        return f"version {document.get('version')} of the format; this program reads version {VERSION}"
    if not isinstance(document.get("records"), list):
        return "no records"
    entries = {f"record {index}": (record, RECORD) for index, record in enumerate(document["records"], 1)}
    for name, (entry, kinds) in {"environment": (document.get("environment"), ENVIRONMENT), **entries}.items():
        for key, kind in kinds.items():
            if not isinstance(entry, dict) or key not in entry or not isinstance(entry[key], kind):
                return f"{name} has no {key}, or an invalid one"
    return None


def labelled(files: Mapping[Path, Document]) -> dict[str, Document]:
    """Label each document by the facts that differ (ranks, MPI, commit), and by file name if labels are not unique."""
    environments = [document["environment"] for document in files.values()]
    facts = [(f"{each['ranks']} ranks", each["mpi"], f"commit {each.get('commit')}") for each in environments]
    differing = [index for index in range(3) if len({fact[index] for fact in facts}) > 1]
    labels = [", ".join(fact[index] for index in differing) for fact in facts]
    if not all(labels) or len(set(labels)) < len(labels):
        names = [path.name for path in files]
        names = names if len(set(names)) == len(names) else list(map(str, files))
        labels = [f"{label}, {name}" if label else name for label, name in zip(labels, names)]
    return dict(zip(labels, files.values()))


def scalable(named: Mapping[str, Document]) -> list[list[Document]]:
    """Group documents that differ only in ranks (and hosts); for each number of ranks, the last document is kept."""
    groups: dict[str, dict[int, Document]] = {}
    for document in named.values():
        environment = document["environment"]
        same = {key: value for key, value in environment.items() if key not in ("ranks", "hosts", "date")}
        groups.setdefault(json.dumps(same, sort_keys=True), {})[environment["ranks"]] = document
    return [list(group.values()) for group in groups.values() if len(group) > 1]


def pairs(named: Mapping[str, Document]) -> list[tuple[str, str]]:
    """Return the labels to compare: with the same ranks and MPI, the first document and each of the others."""
    groups: dict[tuple, list[str]] = {}
    for label, document in named.items():
        groups.setdefault((document["environment"]["ranks"], document["environment"]["mpi"]), []).append(label)
    return [(labels[0], label) for labels in groups.values() for label in labels[1:]]


def about(named: Mapping[str, Document], primitive: str) -> Iterator[Block]:
    """Yield all blocks of the report about a primitive."""
    yield f"## {primitive}"
    against_mpi, times = plots_of(named, primitive)
    yield from against_mpi
    titles = variants(named.values(), [primitive])
    for variant, title in titles.items():
        found = {label: each for label, document in named.items() if (each := curves(document, variant))}
        if len(titles) > 1:
            yield f"### {title}"
        for label, each in found.items():
            if len(found) > 1:
                yield f"#### {label}"
            yield fastest_by_size(each)
            if (variant, label) in times:
                yield times[variant, label]
            yield by_algorithm(each)
    for index, documents in enumerate(scalable(named)):
        for number, (variant, title) in enumerate(titles.items()):
            if plot := plot_by_ranks(documents, variant, title, f"{primitive}-by-ranks-{index}-{number}"):
                yield f"### {title}, by ranks"
                yield plot
    for old, new in pairs(named):
        for variant, title in titles.items():
            before, after = curves(named[old], variant), curves(named[new], variant)
            if before and after:
                yield f"### {title}, before and after: {old} → {new}"
                yield (
                    "Speedup: median before / median after (both in parentheses, in µs). Above 1, the second file is "
                    "faster."
                )
                yield before_after(before, after)


def main(argv: Sequence[str]) -> None:
    """Read all files, and write the report if none is refused."""
    parser = Parser(prog="python -m pycoll.bench.report", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, help="files of `python -m pycoll.bench --json`")
    parser.add_argument(
        "-o", dest="directory", metavar="DIR", type=Path, required=True, help="output directory, created if missing"
    )
    parser.add_argument("--format", choices=["html", "md"], default="html", help="(%(default)s)")
    options = parser.parse_args(argv)
    try:
        named = labelled({path: load(path) for path in options.results})
    except Refused as error:
        parser.error(str(error))
    primitives = dict.fromkeys(record["primitive"] for document in named.values() for record in document["records"])
    warnings = [oversubscribed(document["environment"] for document in named.values())]
    warnings.append(disturbed(record for document in named.values() for record in document["records"]))
    blocks: list[Block] = ["# pycoll benchmark report", *(f"> {warning}" for warning in warnings if warning)]
    blocks += [environments(named), LEGEND]
    files = render(blocks + [block for primitive in primitives for block in about(named, primitive)], options.format)
    with parser.refusing(OSError):
        options.directory.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_bytes(options.directory / name, content)
    say_written(options.directory / f"report.{options.format}")


if __name__ == "__main__":
    main(sys.argv[1:])
