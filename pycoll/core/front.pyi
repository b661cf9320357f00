from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from ..schedule.registry import Primitive
from .slots import Slots

def uses_of(primitive: Primitive) -> int: ...
def set_constants(
    in_place: object, known: Sequence[tuple[MPI.Datatype, np.dtype]], function: Callable[[object], bool]
) -> None: ...

class Front:
    def __init__(
        self,
        slots: Slots | None,
        rank: int,
        size: int,
        sources: int,
        destinations: int,
        tasks: list[Any],
        background: list[Any],
        uses: list[int],
        comm: MPI.Intracomm,
        natives: list[Callable[..., Any] | None],
        task: type,
        tags: Iterator[int],
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
        sent: int = 0,
    ) -> bool: ...
    def call(
        self,
        primitive: int,
        algorithm: str | None,
        sendbuf: Any,
        recvbuf: Any,
        op: Any,
        root: Any,
        recvcounts: Any = None,
    ) -> Any: ...
    def start(
        self,
        primitive: int,
        function: bool,
        algorithm: str | None,
        sendbuf: Any,
        recvbuf: Any,
        op: Any,
        root: Any,
        recvcounts: Any = None,
    ) -> Any: ...
    def remember(
        self,
        primitive: int,
        kind: int,
        algorithm: str | None,
        sendbuf: Any,
        recvbuf: Any,
        op: Any,
        root: Any,
        recvcounts: Any,
        sent: int,
        received: int,
        prepared: Any,
        find_runner: Any,
        allocates: np.ndarray | None,
    ) -> None: ...

class MpiCall:
    def __init__(
        self, function: int, words: list[int], send: int, recv: int, error_of: Callable[[int], Exception], kept: object
    ) -> None: ...
