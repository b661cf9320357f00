"""Files that are replaced atomically."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def write_atomically(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Replace the file `path` atomically: after a crash either the old or the new version is intact."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, suffix=".tmp", delete=False) as file:
        try:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_json(path: str | Path, content: object) -> None:
    """Write an object as JSON, atomically."""
    write_atomically(Path(path), lambda file: file.write(json.dumps(content, indent=1).encode()))
