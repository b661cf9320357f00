from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..schedule.moves import Blocks, Round
from ..schedule.symmetry import Described
from .network import Link

class Template:
    def __init__(self, rounds: list[list[Described]], sides: tuple[int, ...], part: int, longer: int) -> None: ...
    def __len__(self) -> int: ...

class Simulation:
    ends: np.ndarray
    busy: np.ndarray
    messages: np.ndarray
    sent: np.ndarray
    received: np.ndarray
    combined: np.ndarray
    def __init__(
        self,
        rounds: Sequence[Iterator[Round]] | Template,
        links: Sequence[Link],
        hop: float,
        gamma: float,
        longest: int,
        together: Callable[[Blocks], int],
        betas: list[float],
        way: Callable[[int, int], tuple[int, float, list[int]]],
        hosts: np.ndarray | None = None,
        host_count: int = 0,
    ) -> None: ...
    def run(self, starts: Sequence[float]) -> None: ...
    def traffic(self) -> list[tuple[int, float] | None]: ...
