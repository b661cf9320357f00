"""Run the code blocks of the documentation: ``python docs/check_code.py [page.md ...]``; by default, of all pages.

A comment on the line before a block marks it:

- ``<!-- run -->`` runs a ``python`` block under ``mpiexec -n 2``, as a separate program.  In a ``console`` block, it
  runs each line that begins with ``$`` in a shell.  Both run in a temporary directory.
- ``<!-- run: 4 ranks, NAME=VALUE -->`` sets the number of ranks and environment variables.
- ``<!-- file: NAME -->`` saves a block of any language under this name in the directory of the next block that is run.
- ``<!-- source: FILE -->`` compares the functions of a ``python`` block with those in this file of the repository,
  without docstrings and annotations.
- ``<!-- output -->`` compares a ``text`` block with the standard output of the previous block that was run.

A block fails if its exit status is not 0, or if its output differs.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
MARK = re.compile(r"\s*<!-- (?P<what>run|file|source|output)(?:: (?P<options>.*))? -->\s*")
FENCE = re.compile(r"(?P<indent>\s*)```(?P<language>\w+)\s*")
LIMIT = 300  # seconds for a block


@dataclass
class Block:
    """A code block to run, with its ranks, environment variables, files and expected output."""

    page: Path
    line: int
    language: str
    text: str
    ranks: int = 2
    variables: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    output: str | None = None
    source: str | None = None

    def __str__(self) -> str:
        page = self.page.relative_to(ROOT) if ROOT in self.page.parents else self.page
        return f"{page}:{self.line}"


def options_of(text: str | None) -> tuple[int, dict[str, str]]:
    """Return the number of ranks and the environment variables in a mark; raise ValueError for anything else."""
    ranks, variables = 2, {}
    for option in filter(None, (text or "").split(", ")):
        if match := re.fullmatch(r"(\d+) ranks?", option):
            ranks = int(match[1])
        elif match := re.fullmatch(r"(\w+)=(\S*)", option):
            variables[match[1]] = match[2]
        else:
            raise ValueError(f"{option!r} is neither a number of ranks nor NAME=VALUE")
    return ranks, variables


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the marked blocks of a page; raise ValueError for marks that do not match a block."""
    lines = page.read_text(encoding="utf-8").splitlines()
    last: Block | None = None
    files: dict[str, str] = {}
    for number, line in enumerate(lines):
        if not (mark := MARK.fullmatch(line)):
            continue
        where = f"{page}:{number + 1}"
        fence = FENCE.fullmatch(lines[number + 1]) if number + 1 < len(lines) else None
        if not fence:
            raise ValueError(f"{where}: no code block follows this comment")
        indent = fence["indent"]
        end = lines.index(f"{indent}```", number + 2)
        text = "\n".join(line.removeprefix(indent) for line in lines[number + 2 : end]) + "\n"
        if mark["what"] == "output":
            if last is None or fence["language"] != "text":
                raise ValueError(f"{where}: an output must be a text block after a block that is run")
            last.output, last = text, None
        elif mark["what"] == "file":
            files[str(mark["options"])] = text
        elif mark["what"] == "source":
            yield Block(page, number + 2, fence["language"], text, source=mark["options"])
        elif fence["language"] in ("python", "console"):
            ranks, variables = options_of(mark["options"])
            last, files = Block(page, number + 2, fence["language"], text, ranks, variables, files), {}
            yield last
        else:
            raise ValueError(f"{where}: {fence['language']} blocks cannot be run")
    if files:
        raise ValueError(f"{page}: no block that uses the file {next(iter(files))} follows")


def commands(block: Block, folder: Path) -> list[str | list[str]]:
    """Return the command lines of a console block, or the command that runs a Python block."""
    if block.language == "python":
        program = folder / "program.py"
        program.write_text(block.text, encoding="utf-8")
        return [["mpiexec", "-n", str(block.ranks), sys.executable, str(program)]]
    return [line.removeprefix("$ ") for line in block.text.replace("\\\n", "").splitlines() if line.startswith("$ ")]


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


def failure(block: Block) -> str:
    """Run a block, or compare it with its source; return the reason if it fails, or an empty string."""
    if block.source is not None:
        quoted, there = functions(block.text), functions((ROOT / block.source).read_text(encoding="utf-8"))
        differing = [name for name in quoted if quoted[name] != there.get(name)]
        return "" if quoted and not differing else f"{', '.join(differing) or 'no function'}: not as in {block.source}"
    environment = os.environ | block.variables
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
    printed = ""
    with tempfile.TemporaryDirectory() as name:
        for file, text in block.files.items():
            (Path(name) / file).write_text(text, encoding="utf-8")
        for command in commands(block, Path(name)):
            try:
                done = subprocess.run(
                    command,
                    shell=isinstance(command, str),
                    cwd=name,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=LIMIT,
                )
            except subprocess.TimeoutExpired:
                return f"{command} ran for more than {LIMIT} s"
            if done.returncode:
                return f"{command} failed with status {done.returncode}:\n{done.stdout}{done.stderr}"
            printed += done.stdout
    if block.output is not None and printed.split() != block.output.split():
        return f"the output is\n{printed}instead of\n{block.output}"
    return ""


def main() -> None:
    """Run the blocks of the pages, and list those that fail."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="pages (default: all)")
    pages = [page.resolve() for page in parser.parse_args().pages]
    built = DOCS / "_build"
    pages = pages or sorted([*ROOT.glob("*.md"), *(page for page in DOCS.rglob("*.md") if built not in page.parents)])
    blocks = [block for page in pages for block in list(blocks_of(page))]
    if not blocks:
        parser.error("no block has a `run` comment")
    failed = 0
    for block in blocks:
        problem = failure(block)
        failed += bool(problem)
        print(f"{'FAILED' if problem else 'ok':6} {block}", problem, flush=True)
    print(f"{len(blocks)} blocks run, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
