from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..compiler.program import Message, Program
from .pairs import Pairs
from .peer_addresses import PeerAddresses
from .waiting import Waiting

FLOATING_POINT_ERRORS: dict[str, int]

def mailboxes_size(size: int) -> int: ...
def copied(process: int, address: int) -> int | None: ...

class Code:
    program: Program
    scratch: int
    def __init__(
        self,
        program: Program,
        ufunc: np.ufunc | Pairs | None,
        dtype: np.dtype,
        divisor: np.generic | None,
        compute: Callable[[int, int, int, int], BaseException | None] | None,
    ) -> None: ...

class Mailboxes(Waiting):
    near: bool
    def __init__(
        self,
        oversubscribed: bool,
        idle: Callable[[int, bool], int],
        give_up: Callable[[int, BaseException], None],
        mpi: tuple[int, int, int, int],
        memory: Any,
        local_ranks: Sequence[int],
        processes: Sequence[int],
        functions: Sequence[int],
        byte: int,
        error_of: Callable[[int], BaseException],
        arithmetic_error: Callable[[int, Exception | None], Exception | None],
    ) -> None: ...
    def raise_delayed(self) -> None: ...

class Run:
    program: Program
    tag: int
    error: Exception | None
    complete: bool
    broken_off: bool
    position: int
    def __init__(
        self,
        mailboxes: Mailboxes,
        code: Code,
        scratch: Any,
        scratch_address: int,
        tag: int,
        peer_addresses: PeerAddresses | None = None,
    ) -> None: ...
    def count_messages(self, count: Callable[[int], object]) -> None: ...
    def open_messages(self) -> list[Message]: ...
    def bind(self, send: int, recv: int) -> None: ...
    def begin(self) -> None: ...
    def advance(self, wait: bool = False, until: int = -1) -> bool: ...
    def free(self) -> None: ...
