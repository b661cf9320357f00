"""Plot by how much pycoll is faster: ``python -m pycoll.bench.plots.calls RESULTS.json ... -o FILE.svg``.

No MPI is needed.  The files are results of ``pycoll.bench.calls`` or ``pycoll.bench.torch``.  Each file has a panel
with a line for each call: the time of the other library divided by the time of pycoll, against size.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context

from pycoll.base.command_line import Parser, check_folder, in_words, say_written
from pycoll.base.figures import BLUE, GREEN, GREY, INK, ORANGE, STYLE, grid, image
from pycoll.base.files import write_atomically

from ..curves import MPI
from .axes import log_sizes, log_values, name_ends
from .canvas import Canvas, Drawn

COLORS = (BLUE, ORANGE, GREEN, INK, GREY)
# the ratio in a record -> what was called, and the library that pycoll is compared with
COMPARED = {"mpi_comm": ("pycoll.Comm", MPI), "ratio": ("torch.distributed", "gloo")}
Document = Mapping[str, Any]


def key_of(document: Document) -> str:
    """Return the key of the ratio in the records."""
    for key in COMPARED:
        if any(key in record for record in document["records"]):
            return key
    raise ValueError("the files are not results of pycoll.bench.calls --json or pycoll.bench.torch --json")


def lines_of(document: Document, calls: Collection[str] = ()) -> dict[str, dict[int, float]]:
    """Return the ratios by call and size, for calls that were measured at several sizes; `calls` selects some."""
    key = key_of(document)
    lines: dict[str, dict[int, float]] = {}
    for record in document["records"]:
        if not calls or record["call"] in calls:
            lines.setdefault(record["call"], {})[record["bytes"]] = record[key]
    lines = {call: points for call, points in lines.items() if len(points) > 1}
    if missing := [call for call in calls if call not in lines]:
        raise ValueError(f"not measured at two sizes: {', '.join(missing)}")
    if not 0 < len(lines) <= len(COLORS):
        raise ValueError(f"a plot shows 1 to {len(COLORS)} calls at several sizes, not {len(lines)}; see --calls")
    return lines


@rc_context(STYLE)
def plot(documents: Sequence[Document], calls: Collection[str] = ()) -> Drawn:
    """Draw a panel for each document."""
    panels = [lines_of(document, calls) for document in documents]
    called, other = COMPARED[key_of(documents[0])]
    environments = [document["environment"] for document in documents]
    columns = min(2, len(panels))
    title = f"{called}: time of {other} divided by time of pycoll (above 1x: pycoll is faster)"
    canvas = Canvas(title, environments, 2.9 * -(-len(panels) // columns), wide=True)
    values = [ratio for lines in panels for points in lines.values() for ratio in points.values()]
    axes = grid(canvas.figure, len(panels), columns, "size", f"{other} / pycoll")
    for panel, lines, environment in zip(axes, panels, environments):
        log_values(panel, min(*values, 1), max(*values, 1), base=2, form="{x:g}x")
        log_sizes(panel, sorted({size for points in lines.values() for size in points}), 6)
        panel.axhline(1, color=GREY, linewidth=1.2)
        ends = {}
        for (call, points), color in zip(lines.items(), COLORS):
            panel.plot(list(points), list(points.values()), color=color, linewidth=1.6, label=call)
            size = max(points)
            ends[call] = (size, points[size], color)
        name_ends(panel, ends, 2)
        panel.set_title(f"{environment['mpi']}, {environment['ranks']} ranks", fontsize=9, loc="left")
    return canvas.figure


def write_plot(path: Path, documents: Sequence[Document], calls: Collection[str] = ()) -> None:
    """Write the plot to a file; its suffix selects the format."""
    content = image(plot(documents, calls), path.suffix[1:])
    write_atomically(path, lambda file: file.write(content))


def main(argv: list[str]) -> None:
    """Plot the files that the command line names."""
    parser = Parser(prog="python -m pycoll.bench.plots.calls", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS.json", help="files of --json")
    parser.add_argument("--calls", metavar="CALL,...", help="the calls to plot (default: all)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="a .svg, .png or .pdf file")
    options = parser.parse_args(argv)
    try:
        check_folder("--output", options.output)
        documents = [json.loads(path.read_text(encoding="utf-8")) for path in options.results]
        write_plot(options.output, documents, options.calls.split(",") if options.calls else ())
    except KeyError as error:
        parser.error(
            f"the files are not results of pycoll.bench.calls --json or pycoll.bench.torch --json: they have no {error}"
        )
    except (OSError, ValueError) as error:
        parser.error(in_words(error))
    say_written(options.output)


if __name__ == "__main__":
    main(sys.argv[1:])
