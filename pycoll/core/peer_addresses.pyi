from collections.abc import Mapping, Sequence

class Areas:
    def __init__(self, bits: int, size: int) -> None: ...
    def set(self, spans: Sequence[tuple[int, int, int]], shifts: Mapping[int, Sequence[int]]) -> None: ...

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
