from collections.abc import Sequence

import numpy as np

class Areas:
    def __init__(self, bits: int, size: int) -> None: ...
    def set(self, spans: np.ndarray, shifts: np.ndarray) -> None: ...

class PeerAddresses:
    def __init__(
        self,
        areas: Areas,
        local_rank: int,
        needed: Sequence[tuple[int, int]],
        kind: int,
        sizes: tuple[int, int],
        own_block: int,
    ) -> None: ...
