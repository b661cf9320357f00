"""Write the job scripts for Slurm to a directory: ``python -m pycoll.slurm DIRECTORY``.

The README.md among them describes the scripts and their settings; README.zh.md does so in Chinese.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .base.command_line import Parser, say_written
from .base.files import write_bytes

SCRIPTS = ("*.sbatch", "*.sh", "pmi2.py", "README*.md")


def scripts() -> list[Path]:
    """The scripts: of the installed package, or of the checkout."""
    here = Path(__file__).parent
    folder = next(path for path in (here / "job_scripts", here.parent / "slurm") if path.is_dir())
    return sorted(path for pattern in SCRIPTS for path in folder.glob(pattern))


def main(argv: list[str]) -> None:
    """Copy the scripts; replace no file that differs from them, unless that is asked for."""
    parser = Parser(prog="python -m pycoll.slurm", description=__doc__)
    parser.add_argument("directory", type=Path, help="is made if it does not exist")
    parser.add_argument("--force", action="store_true", help="replace files that differ")
    options = parser.parse_args(argv)
    targets = {options.directory / path.name: path.read_bytes() for path in scripts()}
    with parser.refusing(OSError):
        options.directory.mkdir(parents=True, exist_ok=True)
        kept = [path.name for path, content in targets.items() if path.exists() and path.read_bytes() != content]
        if kept and not options.force:
            parser.error(f"{options.directory} has other versions of {', '.join(kept)}: use --force to replace them")
        for path, content in targets.items():
            write_bytes(path, content)
    say_written(options.directory)


if __name__ == "__main__":
    main(sys.argv[1:])
