"""The command line of plots that compare calls of pycoll with calls of another library.  No MPI is needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pycoll.base.command_line import Parser, check_folder, in_words, say_written
from pycoll.base.figures import image
from pycoll.base.files import write_atomically

from .canvas import Drawn

Document = Mapping[str, Any]
Plot = Callable[[Sequence[Document], Collection[str]], Drawn]


def selected(document: Document, calls: Collection[str], command: str, key: str) -> dict[str, dict[int, Any]]:
    """Return the records by call and size, for calls that were measured at several sizes; `calls` selects some.

    Raise ValueError if this command did not write the document, whose records then have no such key.
    """
    found: dict[str, dict[int, Any]] = {}
    for record in document["records"]:
        if key in record and (not calls or record["call"] in calls):
            found.setdefault(record["call"], {})[record["bytes"]] = record
    if not any(key in record for record in document["records"]):
        raise ValueError(f"the files are not results of {command} --json")
    found = {call: records for call, records in found.items() if len(records) > 1}
    if missing := [call for call in calls if call not in found]:
        raise ValueError(f"not measured at two sizes: {', '.join(missing)}")
    return found


def write_plot(plot: Plot, path: Path, documents: Sequence[Document], calls: Collection[str] = ()) -> None:
    """Write the plot to a file; its suffix selects the format."""
    content = image(plot(documents, calls), path.suffix[1:])
    write_atomically(path, lambda file: file.write(content))


def main(plot: Plot, name: str, about: str, argv: Sequence[str]) -> None:
    """Plot the files that the command line of the module `name` names."""
    parser = Parser(prog=f"python -m pycoll.bench.plots.{name}", description=about)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS.json", help="files of --json")
    parser.add_argument("--calls", metavar="CALL,...", help="the calls to plot (default: all)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="a .svg, .png or .pdf file")
    options = parser.parse_args(argv)
    try:
        check_folder("--output", options.output)
        documents = [json.loads(path.read_text(encoding="utf-8")) for path in options.results]
        write_plot(plot, options.output, documents, options.calls.split(",") if options.calls else ())
    except KeyError as error:
        parser.error(f"the files are not results of a benchmark: they have no {error}")
    except (OSError, ValueError) as error:
        parser.error(in_words(error))
    say_written(options.output)
