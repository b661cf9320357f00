"""Mend small schedules: ``python -m pycoll.challenges`` lists them.

``python -m pycoll.challenges NAME`` writes one to NAME.py, for you to change, and ``python -m pycoll.challenges NAME
FILE`` judges what you have made of it.  The text can use Send, Recv, Reduce, BEFORE, AFTER and per_rank.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from ..base.command_line import Parser, say_written, until_the_reader_ends
from ..base.files import write_text
from ..schedule.endless import limit_rounds
from .tasks import CHALLENGES, Challenge, judge


def main(argv: Sequence[str] | None = None) -> int:
    """List, write or judge challenges; return the exit status."""
    parser = Parser(prog="python -m pycoll.challenges", description=__doc__)
    parser.add_argument("name", nargs="?", choices=[*CHALLENGES], help="of a challenge", metavar="NAME")
    parser.add_argument("file", nargs="?", type=Path, help="with your algorithm", metavar="FILE")
    options = parser.parse_args(argv)
    if options.name is None:
        with until_the_reader_ends():
            for each in CHALLENGES.values():
                task = textwrap.indent(textwrap.fill(each.task, 100), "    ")
                print(f"{each.name} ({each.primitive})", task, sep="\n")
        return 0
    if options.file is None:
        return _write(CHALLENGES[options.name], parser)
    try:
        text = options.file.read_text(encoding="utf-8")
    except OSError as error:
        parser.error(f"{options.file}: {error.strerror}")
    except UnicodeDecodeError:
        parser.error(f"{options.file} is no text in UTF-8")
    limit_rounds()
    verdict = judge(options.name, text)
    print(verdict.text)
    return int(not verdict.proved)


def _write(challenge: Challenge, parser: Parser) -> int:
    path = Path(f"{challenge.name}.py")
    if path.exists():
        parser.error(f"{path} exists: to judge it, run python -m pycoll.challenges {challenge.name} {path}")
    with parser.refusing(OSError):
        write_text(path, challenge.text)
    say_written(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
