from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..compiler import program
from .machine import Waiting

FLOATING_POINT_ERRORS: dict[str, int]
TOKEN_AT: int

def mailboxes_size(size: int) -> int: ...
def copied(process: int, address: int) -> int | None: ...

class Code:
    count: int
    scratch: int
    def __init__(
        self,
        program: program.Program,
        ufunc: np.ufunc | None,
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
        memory: Any,
        places: Sequence[int],
        rank: int,
        processes: Sequence[int],
        functions: Sequence[int],
        handles: Sequence[int],
        error_of: Callable[[int], BaseException],
    ) -> None: ...
    def raise_delayed(self) -> None: ...

class Run:
    code: Code
    done: bool
    failed: bool
    position: int
    errors: int
    error: Exception | None
    def __init__(self, mailboxes: Mailboxes, code: Code, scratch: Any, scratch_address: int) -> None: ...
    def __call__(self, tag: int, send: int, recv: int) -> bool: ...
    def open_messages(self) -> list[int]: ...
    def bind(self, send: int, recv: int, peers: Sequence[int] = ()) -> None: ...
    def start(self, tag: int) -> None: ...
    def advance(self, wait: bool = False, until: int = -1) -> bool: ...
