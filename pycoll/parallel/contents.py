"""What belongs to the state of training: the parameters of a driver and the state of its optimizer, in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from .checkpoint_files import OWN
from .driver import Driver
from .flat import Array, Arrays, Piece, copy, fill
from .optimizers import Optimizer

Find = Callable[[str, str, Piece], Iterable[Piece]]  # finds pieces of an array by kind, name and the wanted piece


class PieceValues(NamedTuple):
    """New values for the pieces of this rank, which are not in place yet."""

    arrays: list[tuple[Piece, np.ndarray]]  # with the dtype of the piece
    steps: dict[str, dict[str, int]]  # for each of `Contents.optimizers`, by the keys of its parameters


class Contents:
    """The arrays of a driver and of its optimizer on this rank.

    An optimizer of the driver itself takes precedence over `optimizer`.
    """

    def __init__(self, driver: Driver, optimizer: Optimizer | None = None) -> None:
        self.driver = driver
        self.optimizer = driver.optimizer if driver.updates else optimizer
        both = {"optimizer": self.optimizer, "outer": driver.outer}
        self.optimizers = {kind: optimizer for kind, optimizer in both.items() if optimizer}

    def groups(self) -> dict[str, Arrays]:
        """The arrays by kind and key; the keys are those of `Driver.saved`."""
        groups = dict(self.driver.saved)
        for kind, optimizer in self.optimizers.items():
            groups |= {f"{kind}.{kept}": arrays for kept, arrays in optimizer.state.items()}
        return groups

    def written(self) -> dict[str, Arrays]:
        """The arrays that this rank writes to a checkpoint, by kind and key."""
        if self.driver.saves:
            return self.groups()
        if not self.has_own:
            return {}
        return {kind: arrays for kind, arrays in self.groups().items() if kind.startswith(OWN)}

    @property
    def has_own(self) -> bool:
        """Whether the state of the optimizer differs from rank to rank."""
        return self.driver.independent and bool(self.optimizer and self.optimizer.state)

    def pieces(self, groups: Mapping[str, Arrays] | None = None) -> Iterator[tuple[str, str, Piece]]:
        """Yield arrays as (kind, name of the parameter, piece): those of this rank, or others with their shapes."""
        for kind, arrays in (self.groups() if groups is None else groups).items():
            for _, name, piece in self.driver.pieces(arrays):
                yield kind, name, piece

    def steps(self) -> dict[str, dict[str, int]]:
        """For each optimizer, the number of updates of each parameter of which this rank has a piece."""
        return {
            kind: {name: optimizer.steps[key] for key, name in self.names() if key in optimizer.steps}
            for kind, optimizer in self.optimizers.items()
        }

    def names(self) -> Iterator[tuple[str, str]]:
        """The keys of the arrays of parameters, each with the names of the parameters in it."""
        return ((key, name) for key, name, _ in self.driver.pieces(self.driver.saved["parameters"]))

    def check_steps(self, steps: Mapping[str, Mapping[str, int]]) -> None:
        """Raise ValueError if parameters of which an optimizer counts the updates together have different counts."""
        for kind, optimizer in self.optimizers.items():
            if not optimizer.state:  # then updates do not depend on the count
                continue
            firsts: dict[str, str] = {}
            for key, name in self.names():
                first = firsts.setdefault(key, name)
                counts = [steps.get(kind, {}).get(one, 0) for one in (first, name)]
                if key in optimizer.steps and counts[0] != counts[1]:
                    raise ValueError(
                        f"the numbers of updates differ ({first!r}: {counts[0]}, {name!r}: {counts[1]}), but the "
                        "optimizer of this driver has one count for both"
                    )

    def read(self, find: Find, steps: Mapping[str, Mapping[str, int]]) -> PieceValues:
        """Collect the values of all pieces of this rank; raise ValueError if they are not found."""
        arrays = []
        for kind, name, piece in self.pieces():
            values = np.empty(len(piece.values), piece.values.dtype)
            described = name if kind == "parameters" else f"{name} ({kind})"
            fill(piece._replace(values=values), described, list(find(kind, name, piece)))
            arrays.append((piece, values))
        counts = {
            kind: {key: steps.get(kind, {}).get(name, 0) for key, name in self.names() if key in optimizer.steps}
            for kind, optimizer in self.optimizers.items()
        }
        return PieceValues(arrays, counts)

    def put(self, values: PieceValues, private: Mapping[str, Array]) -> None:
        """Set the arrays to values that were read, and those that belong to this rank only; all ranks call this."""
        for piece, new in values.arrays:
            copy(piece.values, new)
        for kind, optimizer in self.optimizers.items():
            optimizer.steps.update(values.steps[kind])
        self.driver.load_private(private)
        self.driver.loaded()
