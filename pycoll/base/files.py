"""Files that are replaced atomically."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def write_atomically(path: Path, write: Callable[[IO[bytes]], Any], like: Path | None = None) -> None:
    """Replace the file `path` atomically: after a crash either the old or the new version is intact.

    The file keeps its mode, or has that of the file `like`.  If that file does not exist, the umask applies.  A link
    stays, and a pipe or a device is written as it is.
    """
    path = path.resolve() if path.is_symlink() else path
    if path.exists() and not path.is_file():
        with path.open("wb") as special:
            write(special)
        return
    mode = _mode(like or path)
    temporary = path.with_name(f"{path.name}{secrets.token_hex(4)}.tmp")
    created = 0o666 if mode is None else 0o600  # the mode of a replaced file is set below, whatever the umask
    with open(temporary, "x+b", opener=lambda name, flags: os.open(name, flags, created)) as file:
        try:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            write(file)
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink()
            raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _mode(path: Path) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mode & 0o777
    return None


def write_text(path: str | Path, text: str) -> None:
    """Write a text, atomically."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write bytes, atomically."""
    write_atomically(Path(path), lambda file: file.write(data))


def write_json(path: str | Path, content: object) -> None:
    """Write an object as JSON, atomically."""
    write_text(path, json.dumps(content, indent=1))
