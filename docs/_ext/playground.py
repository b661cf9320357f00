"""Builds what the playground loads: the package as a zip file, the Python runtime for browsers (Pyodide), an editor.

``{play} PRIMITIVE ALGORITHM [BESIDE]`` inserts a film and a link to the playground; its content is the text of the
link, its options are the other controls.

In a sentence, the role ``{play}`` inserts only a link: its target is ``PRIMITIVE ALGORITHM [BESIDE] [NAME=VALUE ...]``
or ``challenge=NAME``.

The runtime, the editor, and MathJax for the formulas of all pages come from the npm registry once, and stay in
``docs/_generated``.  Without npm or network, the site is built without them, and the playground says so.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import ReferenceRole, SphinxDirective

from pycoll import playground
from pycoll.challenges.tasks import CHALLENGES

from films import film  # isort: skip

VERSION = "314.0.7"
MATHJAX = "mathjax@4.1.3"
EDITOR = "codemirror@6.0.2", "@codemirror/lang-python@6.2.1", "esbuild@0.28.2"
RUNTIME = ["pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"]
# what schedules, proofs, simulations, drawings and their docstrings need
FILES = ["pycoll/__init__.py", "pycoll/__init__.pyi", "pycoll/playground.py"]
PACKAGES = [
    "pycoll/base",
    "pycoll/challenges",
    "pycoll/compiler",
    "pycoll/draw",
    "pycoll/primitives",
    "pycoll/schedule",
    "pycoll/simulate",
]
SECONDS = 120
NUMBERS = "ranks", "root", "segments", "per_host", "nbytes", "frame"  # controls

logger = logging.getLogger(__name__)


def generate(app: Sphinx, config: Any) -> None:
    """Write the zip file, and fetch the runtime unless it is there."""
    folder = Path(app.srcdir) / "_generated" / "playground"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pycoll.zip").write_bytes(package(Path(app.srcdir).parent))
    fetch(f"pyodide@{VERSION}", RUNTIME, folder / f"pyodide-{VERSION}")
    fetch(MATHJAX, ["tex-svg.js"], folder.parent / "mathjax")
    source = Path(app.srcdir) / "_static" / "playground" / "editor.mjs"
    bundle = folder / "editor.js"
    if not bundle.exists() or bundle.stat().st_mtime < source.stat().st_mtime:
        build_editor(source, bundle)


def package(root: Path) -> bytes:
    """Return a zip file with the part of the package that runs in a browser, and the one module that it needs."""
    spec = find_spec("lazy_loader")
    assert spec is not None and spec.origin is not None
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in [*(root / name for name in FILES), *_files(root)]:
            archive.write(path, path.relative_to(root))
        archive.write(spec.origin, "lazy_loader/__init__.py")
    return file.getvalue()


def _files(root: Path) -> list[Path]:
    found = [path for name in PACKAGES for path in sorted((root / name).iterdir())]
    return [path for path in found if path.suffix in (".py", ".css", ".js")]


def build_editor(source: Path, bundle: Path) -> None:
    """Bundle the editor with CodeMirror from the npm registry; without it, the playground has a plain text area."""
    if not shutil.which("npm"):
        return
    with tempfile.TemporaryDirectory(dir=bundle.parent) as directory:
        shutil.copy(source, directory)
        install = ["npm", "install", "--silent", "--no-audit", "--no-fund", *EDITOR]
        make = ["npx", "esbuild", source.name, "--bundle", "--minify", "--format=esm", "--outfile=bundle.js"]
        try:
            for command in (install, make):
                subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            logger.info("the playground is built without its editor: %s", error)
            return
        (Path(directory) / "bundle.js").rename(bundle)


def fetch(package: str, names: list[str], folder: Path) -> None:
    """Unpack files of an npm package into a new folder, unless it is there."""
    if folder.exists():
        return
    if not shutil.which("npm"):
        logger.info("the site is built without %s, because there is no npm", package)
        return
    with tempfile.TemporaryDirectory(dir=folder.parent) as directory:
        command = ["npm", "pack", "--silent", package]
        try:
            subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            logger.info("the site is built without %s: %s", package, error)
            return
        (packed,) = Path(directory).glob("*.tgz")
        unpacked = Path(directory) / "unpacked"
        unpacked.mkdir()
        with tarfile.open(packed) as archive:
            for name in names:
                (unpacked / name).write_bytes(archive.extractfile(f"package/{name}").read())
        unpacked.rename(folder)


def state_of(primitive: str, names: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    """Return the controls of the playground, as its address holds them."""
    state = {"primitive": primitive, "algorithm": names[0], "ranks": 8, **options}
    return state | ({"beside": names[1]} if names[1:] else {})


def page_of(state: dict[str, Any]) -> str:
    """Return the page that the playground shows; raise ValueError if it cannot show this state."""
    names = [state[name] for name in ("algorithm", "beside") if name in state]
    given = {name: state[name] for name in ("root", "segments", "nbytes", "topology") if name in state}
    try:
        return playground.page(
            state["primitive"], names, state["ranks"], ranks_per_host=state.get("per_host", 1), **given
        )
    except (KeyError, ValueError) as error:
        raise ValueError(f"the playground cannot show {state}: {error}") from error


def address(page: str, state: dict[str, Any]) -> str:
    """Return the address of the playground in this state, seen from a page."""
    return f"{'../' * page.count('/')}playground.html#{quote(json.dumps(state))}"


class Play(SphinxDirective):
    """A film, and a link to the playground."""

    required_arguments, optional_arguments, has_content = 2, 1, True
    option_spec: ClassVar[dict[str, Any]] = {**dict.fromkeys(NUMBERS, directives.nonnegative_int), "topology": str}

    def run(self) -> list[nodes.Node]:
        """Check the state by building its page."""
        primitive, *names = self.arguments
        state = state_of(primitive, names, self.options)
        try:
            page = page_of(state)
        except ValueError as error:
            raise self.error(str(error)) from error
        root, folder = "../" * self.env.docname.count("/"), Path(self.env.srcdir) / "_generated" / "films"
        stem = hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]  # the same when the page changes
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{stem}.html").write_text(page, encoding="utf-8")
        title = " ".join([primitive, *names])
        link = nodes.reference(refuri=address(self.env.docname, state), internal=True)
        link += self.parse_inline(" ".join(self.content))[0]
        played = nodes.raw("", film(f"{root}films/{stem}.html", title), format="html")
        return [played, nodes.paragraph("", "\u25b6 ", link)]


class PlayLink(ReferenceRole):
    """A link to the playground in a sentence."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Check the state by building its page; a challenge must exist."""
        options = dict(re.findall(r"(?<!\S)(\w+)=(\S+)", self.target))
        names = [word for word in self.target.split() if not re.match(r"\w+=", word)]
        try:
            state = self.state(names, options)
        except ValueError as error:
            message = self.inliner.reporter.error(str(error), line=self.lineno)
            return [self.inliner.problematic(self.rawtext, self.rawtext, message)], [message]
        link = nodes.reference(self.rawtext, self.title, refuri=address(self.env.docname, state), internal=True)
        return [link], []

    def state(self, names: list[str], options: dict[str, str]) -> dict[str, Any]:
        """Return the controls; raise ValueError if the playground cannot show them."""
        if names == [] and options.keys() == {"challenge"} and options["challenge"] in CHALLENGES:
            return options
        if len(names) not in (2, 3) or options.keys() - {*NUMBERS, "topology"}:
            raise ValueError(
                f"{self.target!r} is neither PRIMITIVE ALGORITHM [BESIDE] [NAME=VALUE ...] nor a challenge"
            )
        given = {name: int(value) if name in NUMBERS else value for name, value in options.items()}
        state = state_of(names[0], names[1:], given)
        page_of(state)
        return state


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the step, and the name of the folder of the runtime for the page."""
    app.connect("config-inited", generate)
    app.add_directive("play", Play)
    app.add_role("play", PlayLink())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
