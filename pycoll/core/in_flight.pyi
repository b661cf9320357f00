from typing import Any

from .messages import Run

def forget_in_flight() -> None: ...

class Mover:
    shortest: float
    longest: float
    others: int
    def __init__(self, shortest: float, longest: float) -> None: ...
    def move(self, seconds: float, shortest: float, longest: float) -> bool: ...
    def move_until_others(self) -> bool: ...

class RunInFlight:
    prepared: Any
    result: Any
    owner: object
    error: BaseException | None
    done: bool
    deadline: float
    def __init__(
        self,
        run: Run,
        prepared: Any,
        tasks: list[Any],
        asleep: list[Any],
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
