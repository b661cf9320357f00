"""What belongs to the state of training: the parameters of a driver and the state of its optimizer, in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from .driver import Driver
from .flat import Array, Arrays, Piece, copy, fill
from .optimizers import Optimizer

Find = Callable[[str, str, Piece], Iterable[Piece]]  # finds pieces of an array by kind, name and the wanted piece


class Values(NamedTuple):
    """New values for the pieces of this rank, which are not in place yet."""

    arrays: list[tuple[Piece, np.ndarray]]  # with the dtype of the piece
    steps: dict[str, int]


class Contents:
    """The arrays of a driver and of its optimizer on this rank.

    An optimizer of the driver itself takes precedence over `optimizer`.
    """

    def __init__(self, driver: Driver, optimizer: Optimizer | None = None) -> None:
        self.driver = driver
        self.optimizer: Optimizer | None = getattr(driver, "optimizer", None) or optimizer

    def groups(self) -> dict[str, Arrays]:
        """The arrays by kind and key; the keys are those of `Driver.saved`."""
        groups = dict(self.driver.saved)
        if self.optimizer:
            groups |= {f"optimizer.{kept}": arrays for kept, arrays in self.optimizer.state.items()}
        return groups

    def pieces(self, groups: Mapping[str, Arrays] | None = None) -> Iterator[tuple[str, str, Piece]]:
        """Yield arrays as (kind, name of the parameter, piece): those of this rank, or others with their shapes."""
        for kind, arrays in (self.groups() if groups is None else groups).items():
            for _, name, piece in self.driver.pieces(arrays):
                yield kind, name, piece

    def steps(self) -> dict[str, int]:
        """The number of updates of each parameter of which this rank has a piece."""
        steps = self.optimizer.steps if self.optimizer else {}
        return {name: steps[key] for key, name in self.names() if key in steps}

    def names(self) -> Iterator[tuple[str, str]]:
        """The keys of the arrays of parameters, each with the names of the parameters in it."""
        return ((key, name) for key, name, _ in self.driver.pieces(self.driver.saved["parameters"]))

    def check_steps(self, steps: Mapping[str, int]) -> None:
        """Raise ValueError if parameters of which the optimizer counts the updates together have different counts."""
        if not self.optimizer or not self.optimizer.state:  # without state, updates do not depend on the count
            return
        firsts: dict[str, str] = {}
        for key, name in self.names():
            first = firsts.setdefault(key, name)
            if key in self.optimizer.steps and steps.get(first, 0) != steps.get(name, 0):
                raise ValueError(
                    f"{first!r} has {steps.get(first, 0)} updates and {name!r} has {steps.get(name, 0)}, but the "
                    "optimizer of this driver has one count for both"
                )

    def read(self, find: Find, steps: Mapping[str, int]) -> Values:
        """Collect the values of all pieces of this rank; raise ValueError if they are not found."""
        arrays = []
        for kind, name, piece in self.pieces():
            values = np.empty(len(piece.values), piece.values.dtype)
            described = name if kind == "parameters" else f"{name} ({kind})"
            fill(piece._replace(values=values), described, list(find(kind, name, piece)))
            arrays.append((piece, values))
        known = self.optimizer.steps if self.optimizer else {}
        return Values(arrays, {key: steps.get(name, 0) for key, name in self.names() if key in known})

    def put(self, values: Values, private: Mapping[str, Array]) -> None:
        """Set the arrays to values that were read, and those that belong to this rank only; all ranks call this."""
        for piece, new in values.arrays:
            copy(piece.values, new)
        if self.optimizer:
            self.optimizer.steps.update(values.steps)
        self.driver.load_private(private)
        self.driver.loaded()
