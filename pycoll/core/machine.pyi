from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..compiler.program import Step

AREA_SIZE: int
TOKEN_AT: int

def has_loop(ufunc: np.ufunc, dtype: np.dtype) -> bool: ...

class Turn:
    def __init__(self, steps: list[Step]) -> None: ...

class Program:
    def __init__(
        self,
        turns: Sequence[Turn],
        piece: int,
        slots: int,
        ufunc: np.ufunc | None,
        dtype: np.dtype,
        divisor: np.generic | None = None,
    ) -> None: ...

class Slots:
    failed: bool
    def __init__(
        self,
        memory: Any,
        rank: int,
        oversubscribed: bool,
        idle: Callable[[int, bool], int],
        give_up: Callable[[int, BaseException], None],
    ) -> None: ...
    def __call__(self, program: Program, send: int, recv: int) -> None: ...
