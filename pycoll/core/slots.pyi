from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .pairs import Pairs
from .steps import Steps
from .waiting import Waiting

AREA_SIZE: int

class SlotCode:
    def __init__(
        self,
        turns: Sequence[Steps],
        piece: int,
        slots: int,
        ufunc: np.ufunc | Pairs | None,
        dtype: np.dtype,
        divisor: np.generic | None = None,
        call: int = 0,
    ) -> None: ...

class Slots(Waiting):
    def __init__(
        self,
        oversubscribed: bool,
        idle: Callable[[int, bool], int],
        give_up: Callable[[int, BaseException], None],
        mpi: tuple[int, int, int, int],
        memory: Any,
        size: int,
        mismatched: Callable[[int], Exception],
    ) -> None: ...
    def __call__(self, program: SlotCode, send: int, recv: int) -> None: ...
