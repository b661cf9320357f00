"""Plot results of ``bench.torch``: ``python -m bench.torch.plot RESULTS.json ... -o FILE.svg``.

Each file has a panel with the time of gloo divided by the time of pycoll, against size.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context

from pycoll.base.command_line import Parser, check_folder, in_words, say_written
from pycoll.base.figures import BLUE, GREEN, GREY, INK, ORANGE, STYLE, image
from pycoll.base.files import write_atomically

from ..plots.axes import log_sizes, log_values, name_ends
from ..plots.canvas import Canvas, Drawn
from ..usage import typed

COLORS = (BLUE, ORANGE, GREEN, INK, GREY)
TITLE = "torch.distributed: time of gloo divided by time of pycoll (above 1x: pycoll is faster)"


def lines_of(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """Return the ratio by call and size, for calls that were measured at several sizes."""
    lines: dict[str, dict[int, float]] = {}
    for record in records:
        lines.setdefault(record["call"], {})[record["bytes"]] = record["ratio"]
    return {call: points for call, points in lines.items() if len(points) > 1}


@rc_context(STYLE)
def plot(documents: Sequence[Mapping[str, Any]]) -> Drawn:
    """Draw a panel for each document."""
    panels = [lines_of(document["records"]) for document in documents]
    if not all(panels):
        raise ValueError("a plot needs at least two sizes of a collective")
    environments = [document["environment"] for document in documents]
    columns = min(2, len(panels))
    canvas = Canvas(TITLE, environments, 2.9 * -(-len(panels) // columns), wide=True)
    values = [ratio for lines in panels for points in lines.values() for ratio in points.values()]
    axes = canvas.grid(len(panels), columns, "size", "gloo / pycoll")
    for panel, lines, environment in zip(axes, panels, environments):
        log_values(panel, min(*values, 1), max(*values, 1), base=2, form="{x:g}x")
        log_sizes(panel, sorted({size for points in lines.values() for size in points}), 6)
        panel.axhline(1, color=GREY, linewidth=1.2)
        ends = {}
        for (call, points), color in zip(lines.items(), COLORS):
            panel.plot(list(points), list(points.values()), color=color, linewidth=1.6)
            size = max(points)
            ends[call] = (size, points[size], color)
        name_ends(panel, ends, 2)
        panel.set_title(f"{environment['mpi']}, {environment['ranks']} ranks", fontsize=9, loc="left")
    return canvas.figure


def write_plot(path: Path, documents: Sequence[Mapping[str, Any]]) -> None:
    """Write the plot to a file; its suffix selects the format."""
    content = image(plot(documents), path.suffix[1:])
    write_atomically(path, lambda file: file.write(content))


def main(argv: list[str]) -> None:
    """Plot the files that the command line names."""
    parser = Parser(prog=typed("python -m bench.torch.plot"), description=typed(__doc__))
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS.json", help="results of bench.torch --json")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="a .svg, .png or .pdf file")
    options = parser.parse_args(argv)
    try:
        check_folder("--output", options.output)
        write_plot(options.output, [json.loads(path.read_text(encoding="utf-8")) for path in options.results])
    except KeyError as error:
        parser.error(f"the files are not results of bench.torch --json: they have no {error}")
    except (OSError, ValueError) as error:
        parser.error(in_words(error))
    say_written(options.output)


if __name__ == "__main__":
    main(sys.argv[1:])
