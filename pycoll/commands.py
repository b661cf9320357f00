"""Command lines."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """End the program."""
        self.exit(2, f"{self.prog}: {message}\n")


def check_folder(option: str, path: Path | None) -> None:
    """ValueError if the file that an option names is to be in a folder that is not there."""
    if path and not path.parent.is_dir():
        raise ValueError(f"{option} {path}: there is no such folder")


def optional(module: str) -> Any:
    """A module that pycoll does not always need; without it the program ends and says so."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        sys.exit(f"this needs {error.name}: pip install {error.name}")
