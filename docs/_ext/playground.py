"""Builds what the playground loads: the package as a zip file, the Python runtime for browsers (Pyodide), an editor,
and what films load: an encoder of GIF animations.

``{playground}`` inserts the playground in the language of the page.

``{play} PRIMITIVE ALGORITHM [BESIDE]`` inserts a film and a link to the playground; its content is the text of the
link, its options are the other controls.

In a sentence, the role ``{play}`` inserts only a link: its target is ``PRIMITIVE ALGORITHM [BESIDE] [NAME=VALUE ...]``
or ``challenge=NAME``.

The runtime, the editor, the encoder, and MathJax for the formulas of all pages come from the npm registry once, and
stay in ``docs/_generated``.  Without npm or network, the site is built without them, and the playground says so.
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
from pycoll.draw.language import say, speaking
from pycoll.draw.markup import tag, words

from films import GIF, film  # isort: skip
from languages import language_of  # isort: skip

VERSION = "314.0.7"
MATHJAX = "mathjax@4.1.3"
FORMULAS = ["tex-svg.js", "sre/speech-worker.js", *(f"sre/mathmaps/{name}.json" for name in ("base", "en", "nemeth"))]
ESBUILD = "esbuild@0.28.2"
BUNDLES = {  # by the name of their source: the packages in them, and options of esbuild
    "editor.mjs": (["codemirror@6.0.2", "@codemirror/lang-python@6.2.1"], ["--format=esm"]),
    "gif.mjs": (["gifenc@1.0.3"], ["--format=iife", "--global-name=gifEncoder"]),
}
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
BUTTONS = [("reset", "undo"), ("copy", "copy")]
WORDS_OF_SCRIPT = ["no_challenge", "nothing_beside", "loading", "proving", "copied", "stopped", "not_loaded"]
PAGES = {"en": "playground", "zh-CN": "zh/playground"}
NUMBERS = {"ranks": (1, 32, 8), "root": (0, 31, 0), "segments": (1, 16, 2), "per_host": (1, 32, 1)}  # limits, value
SIZES = {"8": "8 B", "1024": "1 KiB", "65536": "64 KiB", "1048576": "1 MiB", "67108864": "64 MiB"}
CONTROLS = *NUMBERS, "nbytes", "frame"

logger = logging.getLogger(__name__)


def generate(app: Sphinx, config: Any) -> None:
    """Write the zip file, and fetch the runtime unless it is there."""
    folder = Path(app.srcdir) / "_generated" / "playground"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pycoll.zip").write_bytes(package(Path(app.srcdir).parent))
    fetch(f"pyodide@{VERSION}", RUNTIME, folder / f"pyodide-{VERSION}")
    fetch(MATHJAX, FORMULAS, folder.parent / "mathjax")
    for name, (packages, options) in BUNDLES.items():
        source, bundle = Path(app.srcdir) / "_static" / "playground" / name, (folder / name).with_suffix(".js")
        if not bundle.exists() or bundle.stat().st_mtime < source.stat().st_mtime:
            build(source, bundle, packages, options)


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


def build(source: Path, bundle: Path, packages: list[str], options: list[str]) -> None:
    """Bundle a script with packages from the npm registry, and their licenses.

    Without the editor, the playground has a plain text area; without the encoder, films have no button for GIF.
    """
    if not shutil.which("npm"):
        return
    with tempfile.TemporaryDirectory(dir=bundle.parent) as directory:
        shutil.copy(source, directory)
        install = ["npm", "install", "--silent", "--no-audit", "--no-fund", *packages, ESBUILD]
        make = ["npx", "esbuild", source.name, "--bundle", "--minify", *options, "--outfile=bundle.js"]
        try:
            for command in (install, make):
                subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            logger.info("the site is built without %s: %s", bundle.name, error)
            return
        licenses = [path for path in Path(directory).glob("node_modules/**/LICENSE*") if "esbuild" not in path.parts]
        texts = {path.read_text(encoding="utf-8") for path in licenses}
        whole = Path(directory) / "bundle.js"
        script = whole.read_text(encoding="utf-8")
        whole.write_text("".join(f"/*!\n{text}*/\n" for text in sorted(texts)) + script, encoding="utf-8")
        whole.rename(bundle)


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
                (unpacked / name).parent.mkdir(parents=True, exist_ok=True)
                (unpacked / name).write_bytes(archive.extractfile(f"package/{name}").read())
        unpacked.rename(folder)


class Playground(SphinxDirective):
    """The controls, the film and the editor; a script gives them life."""

    def run(self) -> list[nodes.Node]:
        """Return the markup, with the words that the script needs."""
        root, language = "../" * self.env.docname.count("/"), language_of(self.env.docname)
        state = state_of("allreduce", ["ring"], {"ranks": 4})
        first = written(Path(self.env.srcdir), state, page_of(state, language), language)
        with speaking(language):
            return [nodes.raw("", markup(root, f"{root}{first}#film"), format="html")]


def markup(root: str, first: str) -> str:
    """Return the playground for a page; `root` is the way from the page to the root of the site.

    The film at the address `first` is there until Python is loaded.
    """

    def label(name: str, field: str, *more: str) -> str:
        return tag("label", words(say(name)) + " ", field, *more)

    fields = [label(name, tag("select", name=name)) for name in ("challenge", "primitive", "algorithm", "beside")]
    for name, (least, most, value) in NUMBERS.items():
        fields.append(label(name, tag("input", name=name, type="number", min=least, max=most, value=value)))
    sizes = [tag("option", text, value=value, selected=text == "1 MiB") for value, text in SIZES.items()]
    fields.append(label("nbytes", tag("select", *sizes, name="nbytes")))
    topologies, given = "playground-topologies", {"placeholder": say("one_switch"), "autocomplete": "off"}
    fields.append(label("topology", tag("input", name="topology", list=topologies, **given)))
    fields.append(tag("datalist", id=topologies))
    film = tag("iframe", title=say("steps_of"), sandbox="allow-scripts allow-downloads", src=first)
    plain = {"spellcheck": "false", "autocapitalize": "off", "autocomplete": "off"}
    editor = [
        tag("label", words(say("generator")), for_="playground-source"),
        tag("textarea", id="playground-source", name="source", **plain),
        tag("output", aria_live="polite"),
        tag("figure", class_="waiting", hidden=True),
        *(tag("button", words(say(text)), type="button", name=name) for name, text in BUTTONS),
    ]
    stage = tag("div", film, tag("div", *editor, class_="code"), class_="stage")
    spoken = json.dumps({name: say(name) for name in WORDS_OF_SCRIPT})
    parts = [tag("fieldset", *fields), tag("p", class_="task", hidden=True), stage]
    folder = f"{root}_static/playground"
    return "".join(
        [
            tag("link", rel="stylesheet", href=f"{folder}/playground.css"),
            tag("div", *parts, id="playground", data_words=spoken),
            tag("script", type="module", src=f"{folder}/playground.js"),
        ]
    )


def state_of(primitive: str, names: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    """Return the controls of the playground, as its address holds them."""
    state = {"primitive": primitive, "algorithm": names[0], "ranks": 8, **options}
    return state | ({"beside": names[1]} if names[1:] else {})


def page_of(state: dict[str, Any], language: str) -> str:
    """Return the page that the playground shows; raise ValueError if it cannot show this state."""
    names = [state[name] for name in ("algorithm", "beside") if name in state]
    given = {name: state[name] for name in ("root", "segments", "nbytes", "topology") if name in state}
    given |= {"ranks_per_host": state.get("per_host", 1), "gif": GIF, "language": language}
    try:
        return playground.page(state["primitive"], names, state["ranks"], **given)
    except (KeyError, ValueError) as error:
        raise ValueError(f"the playground cannot show {state}: {error}") from error


def written(docs: Path, state: dict[str, Any], page: str, language: str) -> str:
    """Write the page that the playground shows in this state, and return its address in the site."""
    named = json.dumps(state) + language.removeprefix("en")
    name = f"films/{hashlib.sha256(named.encode()).hexdigest()[:16]}.html"  # the same when the page changes
    file = docs / "_generated" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page, encoding="utf-8")
    return name


def address(page: str, state: dict[str, Any]) -> str:
    """Return the address of the playground in this state, seen from a page."""
    return f"{'../' * page.count('/')}{PAGES[language_of(page)]}.html#{quote(json.dumps(state))}"


class Play(SphinxDirective):
    """A film, and a link to the playground."""

    required_arguments, optional_arguments, has_content = 2, 1, True
    option_spec: ClassVar[dict[str, Any]] = {**dict.fromkeys(CONTROLS, directives.nonnegative_int), "topology": str}

    def run(self) -> list[nodes.Node]:
        """Check the state by building its page."""
        primitive, *names = self.arguments
        state, language = state_of(primitive, names, self.options), language_of(self.env.docname)
        try:
            page = page_of(state, language)
        except ValueError as error:
            raise self.error(str(error)) from error
        root, name = "../" * self.env.docname.count("/"), written(Path(self.env.srcdir), state, page, language)
        title = " ".join([primitive, *names])
        link = nodes.reference(refuri=address(self.env.docname, state), internal=True)
        link += self.parse_inline(" ".join(self.content))[0]
        played = nodes.raw("", film(root + name, title), format="html")
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
        if len(names) not in (2, 3) or options.keys() - {*CONTROLS, "topology"}:
            raise ValueError(
                f"{self.target!r} is neither PRIMITIVE ALGORITHM [BESIDE] [NAME=VALUE ...] nor a challenge"
            )
        given = {name: int(value) if name in CONTROLS else value for name, value in options.items()}
        state = state_of(names[0], names[1:], given)
        page_of(state, language_of(self.env.docname))
        return state


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the step, and the name of the folder of the runtime for the page."""
    app.connect("config-inited", generate)
    app.add_directive("play", Play)
    app.add_directive("playground", Playground)
    app.add_role("play", PlayLink())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
