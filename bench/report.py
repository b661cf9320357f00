"""A report of result files: ``python -m bench.report RESULTS.json ... -o DIR``.  No MPI is needed.

Files that differ in ranks only also give curves of time against ranks; of files with the same ranks and MPI, the first
is compared with each of the others, as before and after.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from matplotlib.figure import Figure
from tabulate import tabulate

from pycoll.base.files import write_atomically
from pycoll.tune.options import size_label

from . import plots
from .curves import MPI, Curves, Document, curves, fastest, ranges, ratio, sizes_of, variants
from .results import FORMAT, VERSION
from .usage import typed

Block = str | tuple[str, Figure]  # Markdown, or a plot and its name
ENVIRONMENT: dict[str, Any] = {"ranks": int, "hosts": list, "mpi": str, "cpu": str}  # what must be there
RECORD: dict[str, Any] = {"primitive": str, "algorithm": str, "bytes": int}
RECORD |= dict.fromkeys(("median", "busbw", "native"), (float, int, type(None)))
LEGEND = (
    "Each cell: the median in µs and, in brackets, the time of MPI divided by it (above 1: faster than MPI). "
    "★ is the fastest of its row; WRONG had wrong results; ok was checked but not timed."
)
HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>pycoll bench</title><style>
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 80rem; margin: 2rem auto; padding: 0 1rem }
table { display: block; overflow-x: auto; border-collapse: collapse; white-space: nowrap }
th, td { padding: .2rem .7rem; border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent) }
img { max-width: 100%; background: white; border-radius: 6px }
</style></head><body>
"""


class Refused(ValueError):
    """A file that is not a result file; the message names it and the reason."""


def load(path: Path) -> Document:
    """A result file; `Refused` if it is none that this program can read."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=str)  # NaN is no number
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"broken JSON: {error}"
        raise Refused(f"{path}: {reason}") from None
    if reason := _flaw(document):
        raise Refused(f"{path}: {reason}")
    return document


def _flaw(document: Any) -> str | None:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return typed("not a result of python -m bench")
    if document.get("version") != VERSION:
        return f"version {document.get('version')} of the format, where this program reads version {VERSION}"
    if not isinstance(document.get("records"), list):
        return "no records"
    entries = {f"record {place}": (record, RECORD) for place, record in enumerate(document["records"], 1)}
    for name, (entry, kinds) in {"environment": (document.get("environment"), ENVIRONMENT), **entries}.items():
        for key, kind in kinds.items():
            if not isinstance(entry, dict) or key not in entry or not isinstance(entry[key], kind):
                return f"{name} has no {key}, or one that cannot be"
    return None


def labelled(files: Mapping[Path, Document]) -> dict[str, Document]:
    """Documents by what differs between them: ranks, MPI, commit; by their files' names where that is not enough."""
    environments = [document["environment"] for document in files.values()]
    facts = [(f"{each['ranks']} ranks", each["mpi"], f"commit {each.get('commit')}") for each in environments]
    differing = [place for place in range(3) if len({fact[place] for fact in facts}) > 1]
    labels = [", ".join(fact[place] for place in differing) for fact in facts]
    if not all(labels) or len(set(labels)) < len(labels):
        names = [path.name for path in files]
        names = names if len(set(names)) == len(names) else list(map(str, files))
        labels = [f"{label}, {name}" if label else name for label, name in zip(labels, names)]
    return dict(zip(labels, files.values()))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table in Markdown; all columns but the first `left` are numbers."""
    aligned = ["left" if column < left else "right" for column in range(len(headings))]
    safe = [[" ".join(text.split()).replace("|", r"\|") for text in row] for row in rows]
    return tabulate(safe, headings, tablefmt="pipe", disable_numparse=True, colalign=aligned if safe else None)


def environments(named: Mapping[str, Document]) -> str:
    """A row for each file: where and with what it was measured."""

    def said(value: Any) -> str:
        return ", ".join(map(str, value)) if isinstance(value, list) else "-" if value is None else str(value)

    keys = list(dict.fromkeys(key for document in named.values() for key in document["environment"]))
    rows = [[label, *(said(document["environment"].get(key)) for key in keys)] for label, document in named.items()]
    return table(["file", *keys], rows, left=len(keys) + 1)


def number(value: float) -> str:
    """Three figures, and no more than are before the point."""
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def cell(found: Curves, name: str, size: int) -> str:
    """What the table says of an algorithm at a size."""
    record = found.get(name, {}).get(size)
    if record is None or (record["median"] is None and record.get("wrong") is None):
        return "-"
    against = ratio(found, name, size)
    text = number(record["median"]) if record["median"] else "ok"
    text += f" ({against:.2f})" if against else ""
    if record.get("wrong"):
        return f"WRONG {text}" if record["median"] else "WRONG"
    return f"★ {text}" if fastest(found, size, found) == name else text


def fastest_by_size(found: Mapping[str, Curves]) -> str:
    """The fastest algorithm in each range of sizes: a row for each range and file."""
    several = len(found) > 1
    rows = [
        [*([label] if several else []), row["sizes"] or "-", row["fastest"], row["ratio"] or "-"]
        for label, each in found.items()
        for row in ranges(each)
    ]
    headings = [*(["file"] if several else []), "sizes", "fastest of pycoll", "MPI / time"]
    return table(headings, rows, left=2 + several) if rows else "Nothing was timed."


def by_algorithm(found: Curves) -> str:
    """Times and ratios of one way to call a primitive: a row for each size, MPI first, a column for each algorithm."""
    names = sorted(found, key=lambda name: name != MPI)
    rows = [[size_label(size), *(cell(found, name, size) for name in names)] for size in sizes_of(found)]
    return table(["size", *names], rows)


def scalable(named: Mapping[str, Document]) -> list[list[Document]]:
    """Documents that differ in ranks only (and so in hosts), of each number of ranks the last."""
    groups: dict[str, dict[int, Document]] = {}
    for document in named.values():
        environment = document["environment"]
        same = {key: value for key, value in environment.items() if key not in ("ranks", "hosts", "date")}
        groups.setdefault(json.dumps(same, sort_keys=True), {})[environment["ranks"]] = document
    return [list(group.values()) for group in groups.values() if len(group) > 1]


def pairs(named: Mapping[str, Document]) -> list[tuple[str, str]]:
    """What is compared, before and after: of those with the same ranks and MPI, the first with each of the others."""
    groups: dict[tuple, list[str]] = {}
    for label, document in named.items():
        groups.setdefault((document["environment"]["ranks"], document["environment"]["mpi"]), []).append(label)
    return [(labels[0], label) for labels in groups.values() for label in labels[1:]]


def before_after(before: Curves, after: Curves) -> str:
    """How many times faster the second is, and both medians: sizes down, algorithms across."""

    def change(name: str, size: int) -> str:
        old, new = (found[name].get(size, {}).get("median") for found in (before, after))
        return f"{old / new:.2f} ({number(old)} → {number(new)})" if old and new else "-"

    names = [name for name in before if name in after]
    sizes = [size for size in sizes_of(before) if size in sizes_of(after)]
    return table(["size", *names], [[size_label(size), *(change(name, size) for name in names)] for size in sizes])


def about(named: Mapping[str, Document], primitive: str) -> Iterator[Block]:
    """All that there is to say of a primitive."""
    yield f"## {primitive}"
    yield primitive, plots.by_size(named, [primitive])
    titles = variants(named.values(), [primitive])
    for variant, title in titles.items():
        found = {label: each for label, document in named.items() if (each := curves(document, variant))}
        if len(titles) > 1:
            yield f"### {title}"
        yield fastest_by_size(found)
        for label, each in found.items():
            if len(found) > 1:
                yield f"#### {label}"
            yield by_algorithm(each)
    for place, documents in enumerate(scalable(named)):
        if figure := plots.by_ranks(documents, primitive):
            yield f"### {primitive} by ranks"
            yield f"{primitive}-by-ranks{place or ''}", figure
    for old, new in pairs(named):
        for variant, title in titles.items():
            before, after = curves(named[old], variant), curves(named[new], variant)
            if before and after:
                yield f"### {title}, before and after: {old} → {new}"
                yield "Times faster: the median before divided by that after; in brackets both, in µs."
                yield before_after(before, after)


def render(blocks: Iterable[Block], kind: str) -> dict[str, bytes]:
    """The report's files by name, the report itself last."""
    files: dict[str, bytes] = {}
    texts = []
    for block in blocks:
        if isinstance(block, str):
            texts.append(block)
            continue
        name, png = re.sub(r"[^\w-]", "_", block[0]) + ".png", plots.image(block[1], "png")
        inline = f"data:image/png;base64,{base64.b64encode(png).decode()}"
        texts.append(f"![Plots of {block[0]}]({inline if kind == 'html' else name})")
        files |= {} if kind == "html" else {name: png}
    text = "\n\n".join(texts) + "\n"
    if kind == "html":  # without HTML in the Markdown: names of files and machines may hold anything
        text = f"{HEAD}{MarkdownIt('js-default').render(text)}</body></html>\n"
    return {**files, f"report.{kind}": text.encode()}


def main(argv: Sequence[str]) -> None:
    """Read the files, and write the report if all can be read."""
    parser = argparse.ArgumentParser(prog=typed("python -m bench.report"), description=typed(__doc__))
    parser.add_argument("results", nargs="+", type=Path, help=typed("files of `python -m bench --json`"))
    parser.add_argument(
        "-o", dest="directory", metavar="DIR", type=Path, required=True, help="folder of the report, created if need be"
    )
    parser.add_argument("--format", choices=["html", "md"], default="html", help="(%(default)s)")
    options = parser.parse_args(argv)
    try:
        named = labelled({path: load(path) for path in options.results})
    except Refused as error:
        parser.exit(2, f"{error}\n")
    primitives = dict.fromkeys(record["primitive"] for document in named.values() for record in document["records"])
    blocks: list[Block] = ["# The collectives of pycoll, measured", environments(named), LEGEND]
    files = render(blocks + [block for primitive in primitives for block in about(named, primitive)], options.format)
    options.directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(options.directory / name, methodcaller("write", content))
    print(options.directory / f"report.{options.format}")


if __name__ == "__main__":
    main(sys.argv[1:])
