"""Text that every machine with Python has: the sources of the standard library, as sequences of characters."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import NamedTuple

import numpy as np

TOKENS = 128  # ASCII characters; others become a question mark


class Text(NamedTuple):
    """Characters for training, and others to measure the loss on, from different files."""

    training: np.ndarray
    held_out: np.ndarray


def standard_library() -> Text:
    """Return the text of the modules of the standard library; every tenth is held out."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    kept = [file for number, file in enumerate(files) if number % 10]
    return Text(_characters(kept), _characters(files[::10]))


def _characters(files: list[Path]) -> np.ndarray:
    text = "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
    return np.frombuffer(text.encode("ascii", errors="replace"), np.uint8)


def sequences(text: np.ndarray, count: int, length: int, seed: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return random sequences of shape (count, length), and the character after each of their characters."""
    starts = np.random.default_rng(seed).integers(len(text) - length, size=(count, 1))
    window = text[starts + np.arange(length + 1)].astype(np.int64)
    return window[:, :-1], window[:, 1:]
