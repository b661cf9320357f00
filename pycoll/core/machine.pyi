from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..compiler.program import Step
from .pairs import Pairs

AREA_SIZE: int

def has_loop(ufunc: np.ufunc, dtype: np.dtype) -> bool: ...

class Steps:
    def __init__(self, steps: list[Step]) -> None: ...

class Program:
    def __init__(
        self,
        turns: Sequence[Steps],
        piece: int,
        slots: int,
        ufunc: np.ufunc | Pairs | None,
        dtype: np.dtype,
        divisor: np.generic | None = None,
    ) -> None: ...

class Waiting:
    failed: bool

class Slots(Waiting):
    turn: int
    left: int
    def __init__(
        self,
        oversubscribed: bool,
        idle: Callable[[int, bool], int],
        give_up: Callable[[int, BaseException], None],
        memory: Any,
        rank: int,
        size: int,
    ) -> None: ...
    def __call__(self, program: Program, send: int, recv: int) -> None: ...
