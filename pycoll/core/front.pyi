from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from ..schedule.registry import Primitive
from .machine import Program, Slots

def uses_of(primitive: Primitive) -> int: ...
def set_constants(in_place: object, known: Sequence[tuple[MPI.Datatype, np.dtype]]) -> None: ...

class Front:
    def __init__(
        self,
        slots: Slots | None,
        rank: int,
        size: int,
        busy: tuple[list[Any], list[Any]],
        uses: list[int],
        natives: list[Callable[..., Any]],
    ) -> None: ...
    def forget(self) -> None: ...
    def run(
        self,
        primitive: int,
        algorithm: str | None,
        sendbuf: Any,
        recvbuf: Any,
        op: Any,
        root: Any,
        recvcounts: Any = None,
    ) -> bool: ...
    def start(
        self, primitive: int, sendbuf: Any, recvbuf: Any, op: Any, root: Any, recvcounts: Any = None
    ) -> MPI.Request | None: ...
    def remember(
        self,
        primitive: int,
        later: bool,
        algorithm: str | None,
        sendbuf: Any,
        recvbuf: Any,
        op: Any,
        root: Any,
        recvcounts: Any,
        program: Program | None,
        quick: Callable[..., object] | None,
        sent: int,
        received: int,
    ) -> None: ...
