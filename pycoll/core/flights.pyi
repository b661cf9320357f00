from typing import Any

from .messages import Run

class Flight:
    prepared: Any
    result: Any
    thread: int
    owner: object
    error: BaseException | None
    done: bool
    deadline: float
    def __init__(
        self,
        run: Run,
        prepared: Any,
        busy: tuple[list[Any], list[Any]],
        idle: list[Run] | None,
        kept: object,
        result: Any,
    ) -> None: ...
    @property
    def executable(self) -> Run | None: ...
    @property
    def inside(self) -> bool: ...
    def begin(self) -> None: ...
    def advance(self, wait: bool = False) -> bool: ...
    def finish(self) -> None: ...
    def end(self) -> None: ...
