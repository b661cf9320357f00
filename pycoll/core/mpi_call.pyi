from collections.abc import Callable

class MpiCall:
    def __init__(
        self, function: int, words: list[int], send: int, recv: int, error_of: Callable[[int], Exception], kept: object
    ) -> None: ...
