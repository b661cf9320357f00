"""Local SGD and DiLoCo: ranks train on their own for several steps, and then average how far they came."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mpi4py import MPI

import pycoll

from ..base.numbers import check_positive
from ..runtime.interruptions import interruptions_delayed
from .agreement import check_same_arrays, check_same_options
from .buckets import average_gradients
from .driver import Driver, own_communicator
from .flat import Array, Arrays, check_arrays
from .optimizers import SGD, Optimizer


class LocalSGD(Driver):
    """Average the parameters of all ranks after each `every` steps.

    Between averages, each rank updates its parameters with an optimizer of its own.  At an average, the differences of
    the parameters from the last average, with the sign of a gradient, are averaged, and an outer optimizer applies
    them.  All ranks of `comm` create the driver together and call `step` equally often.

    Parameters
    ----------
    parameters : mapping of str to array
        The arrays of the model, with a floating-point or complex dtype.  They get the values of rank 0.
    every : int
        The number of steps between averages.
    outer : callable, optional
        Makes the outer optimizer from a mapping of arrays.  The default, ``SGD(parameters, lr=1.0)``, sets parameters
        to their averages, which is local SGD.  DiLoCo is ``partial(SGD, lr=0.7, momentum=0.9, nesterov=True)``, with
        AdamW as the optimizer of each rank.
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, COMM_WORLD by default.  The driver uses a duplicate of it.

    Attributes
    ----------
    steps : int
        The number of steps since the last average.
    outer : Optimizer
        The outer optimizer.

    Raises
    ------
    TypeError, ValueError
        For invalid parameters, as in `DistributedDataParallel`.
    ValueError
        If `every` is not positive.

    Notes
    -----
    Sent in `every` steps: 2 * (p - 1) * Z // p, for parameters of Z bytes on p ranks.

    Save a checkpoint after an average; between averages, `save` raises RuntimeError.  `load` is possible at any time,
    and discards the steps since the last average.

    A checkpoint holds the state of the outer optimizer.  If the optimizer of each rank is passed to `save` and `load`,
    each rank gets its own state back.  With another number of ranks, or in another driver, all ranks get the state of
    the optimizer of rank 0.

    References
    ----------
    Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019. https://arxiv.org/abs/1805.09767

    Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023.
    https://arxiv.org/abs/2311.08105
    """

    outer: Optimizer

    @interruptions_delayed()
    def __init__(
        self,
        parameters: Arrays,
        every: int,
        *,
        outer: Callable[[Arrays], Optimizer] | None = None,
        comm: MPI.Comm | None = None,
    ) -> None:
        self.parameters = check_arrays("parameters", parameters)
        check_positive("every", every, "number of steps")
        self.every, self.steps = every, 0
        with own_communicator(comm) as self.comm:
            check_same_arrays("parameter", self.parameters, self.comm)
            check_same_options(self.comm, every=every)
        for array in self.parameters.values():
            pycoll.bcast(array, comm=self.comm)
        self._last = {name: array.copy() for name, array in self.parameters.items()}
        self.outer = (outer or _to_average)(self._last)

    def step(self) -> bool:
        """Count a step of the optimizer of this rank, and average if it is time.

        Returns
        -------
        bool
            Whether the parameters were averaged.
        """
        self.steps += 1
        if self.steps < self.every:
            return False
        differences = {name: _difference(self._last[name], array) for name, array in self.parameters.items()}
        average_gradients(differences, comm=self.comm)
        self.outer.step(differences)
        self.loaded()
        return True

    def check_saving(self) -> None:
        """Raise RuntimeError if there were steps since the last average."""
        if self.steps:
            raise RuntimeError(f"steps since the last average would be lost ({self.steps}); save after an average")

    @property
    def saved(self) -> dict[str, Arrays]:
        """The arrays that a checkpoint holds: the last averages."""
        return {"parameters": self._last}

    @property
    def independent(self) -> bool:
        """True: between averages, each rank has an optimizer of its own."""
        return True

    def loaded(self) -> None:
        """Set the parameters to the last averages."""
        for name, array in self.parameters.items():
            np.copyto(array, self._last[name])
        self.steps = 0


def _difference(last: Array, array: Array) -> Array:
    return np.subtract(last, array, out=np.empty_like(last))  # an array even if it has no axes


def _to_average(parameters: dict[str, Array]) -> Optimizer:
    return SGD(parameters, lr=1.0)
