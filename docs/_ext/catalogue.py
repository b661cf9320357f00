"""Sphinx directives that generate the catalogue of algorithms from the registry when the site is built.

- ``{costs} PRIMITIVE`` inserts the rows of a primitive in the table of costs.
- ``{algorithms} PRIMITIVE`` describes the algorithms of a primitive, from their docstrings.
- ``{drawing} PRIMITIVE ALGORITHM`` inserts a film; with ``:playing:``, one that moves at once.

The directory ``drawings`` of the site has the drawings of all algorithms; ``python -m pycoll.draw --all`` makes them.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from mpi4py import MPI
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import pycoll
from pycoll.api.comm_messages import DeviceMessages
from pycoll.draw.gallery import Setting, guide
from pycoll.schedule.costs import table
from pycoll.schedule.registry import COLLECTIVES, algorithms_of, find

from films import GIF, film  # isort: skip

FIELDS = ("Rounds:", "Messages:", "Sent:", "Received:", "Cost:", "Limits:", "Source:")


def generate(app: Sphinx, config: Any) -> None:
    """Draw all algorithms on 4 ranks; do not rewrite unchanged files."""
    folder = Path(app.srcdir) / "_generated" / "drawings"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in guide(Setting(), GIF):
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            path.write_text(content, encoding="utf-8")


class _FromMarkdown(SphinxDirective):
    """A directive that generates Markdown from the name of a primitive."""

    required_arguments = 1

    def markdown(self, primitive: str) -> list[str]:
        """Return the generated Markdown as text blocks."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Parse the generated Markdown at the place of the directive."""
        if self.arguments[0] not in COLLECTIVES:
            raise self.error(f"{self.arguments[0]!r} is not one of the primitives: {', '.join(COLLECTIVES)}")
        container = nodes.container()
        lines = "\n".join(self.markdown(self.arguments[0])).splitlines()
        self.state.nested_parse(StringList(lines), self.content_offset, container)
        return container.children


class Costs(_FromMarkdown):
    """The rows of one primitive in the table of costs, without the column of primitives."""

    def markdown(self, primitive: str) -> list[str]:
        """Return the rows of the table."""
        header, line, *rows = [row.split(" | ", 1) for row in table().splitlines()]
        chosen = [rest for first, rest in rows if first == f"| {primitive}"]
        return [f"| {header[1]}", line[0].replace("|---", "", 1), *(f"| {row}" for row in chosen)]


class Algorithms(_FromMarkdown):
    """The description, limits and source of each algorithm of a primitive."""

    def markdown(self, primitive: str) -> list[str]:
        """Return a definition list."""
        lines = []
        for name, algorithm in algorithms_of(primitive).items():
            about, fields = _parts(inspect.getdoc(algorithm.generator) or "")
            root = "../" * self.env.docname.count("/")
            lines += [f'`{name}` (<a href="{root}drawings/{algorithm.stem}.html">drawing</a>)']
            lines += [f": {_escaped(' '.join(about))}", ""]
            more = [f"*{field}* {_escaped(fields[field])}" for field in ("Limits:", "Source:") if field in fields]
            lines += [f"  {text}\n" for text in more]
        return lines


def _escaped(text: str) -> str:
    """Escape asterisks and underscores, which are part of formulas and names; not those in code."""
    parts = text.split("`")
    parts[::2] = [part.replace("*", "\\*").replace("_", "\\_") for part in parts[::2]]
    return "`".join(parts)


def _parts(doc: str) -> tuple[list[str], dict[str, str]]:
    """Split a docstring into its description and its fields."""
    about: list[str] = []
    fields: dict[str, str] = {}
    current = ""
    for line in map(str.strip, doc.splitlines()):
        key = next((field for field in FIELDS if line.startswith(field)), "")
        if key:
            current, fields[key] = key, line.removeprefix(key).strip()
        elif current:
            fields[current] += f" {line}" if line else ""
        elif line:
            about.append(line)
    return about, fields


class Drawing(SphinxDirective):
    """A film of an algorithm on 4 ranks, and links to the page with its code and to a drawing of all steps."""

    required_arguments = 2
    option_spec: ClassVar[dict[str, Any]] = {"playing": directives.flag}

    def run(self) -> list[nodes.Node]:
        """Return a figure with a caption, or the film alone."""
        primitive, name = self.arguments
        root = "../" * self.env.docname.count("/")
        stem = f"{root}drawings/{find(primitive, name).stem}"
        if "playing" in self.options:
            return [nodes.raw("", film(f"{stem}.html", f"{primitive}, {name}", playing=True), format="html")]
        html = (
            f"<figure>{film(f'{stem}.html', f'{primitive}, {name}, on 4 ranks')}"
            f"<figcaption><code>{primitive}</code>, <code>{name}</code>, on 4 ranks: "
            f'<a href="{stem}.html">with its code</a>, <a href="{stem}.svg">all steps</a></figcaption></figure>'
        )
        return [nodes.raw("", html, format="html")]


REPLACED = {
    r"<mpi4py\.MPI\.Op object at 0x\w+>": "MPI.SUM",
    r"<mpi4py\.MPI\.Info object at 0x\w+>": "MPI.INFO_NULL",
    r"~mpi4py\.MPI\.": "mpi4py.MPI.",  # in full, because pycoll also has a Request
}


def name_constants(app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: Any, result: Any) -> Any:
    """Show the names of MPI constants and types in signatures."""
    for pattern, text in REPLACED.items():
        signature = re.sub(pattern, text, signature) if signature else signature
    return signature, result


def skip_mpi4py(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the members that `pycoll.Comm` inherits from mpi4py, and those that only wrap them."""
    wraps = getattr(obj, "__module__", None) == DeviceMessages.__module__
    return True if wraps or obj == getattr(MPI.Intracomm, name, skip_mpi4py) else None


def link_algorithms(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn the module names of primitives into links to the page of algorithms."""
    lines[:] = [re.sub(r"`pycoll\.primitives\.(\w+)`", r":ref:`\1 <algorithms-\1>`", line) for line in lines]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives and event handlers."""
    for name in dir(pycoll.Comm):
        method = getattr(pycoll.Comm, name)
        if name.endswith("_init") and hasattr(method, "__wrapped__"):
            del method.__wrapped__  # it has fewer parameters, so autodoc would show wrong defaults
    app.connect("config-inited", generate, priority=100)
    app.connect("autodoc-process-signature", name_constants)
    app.connect("autodoc-skip-member", skip_mpi4py)
    app.connect("autodoc-process-docstring", link_algorithms)
    app.add_directive("costs", Costs)
    app.add_directive("algorithms", Algorithms)
    app.add_directive("drawing", Drawing)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
