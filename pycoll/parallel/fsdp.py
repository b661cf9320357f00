"""Fully sharded data parallel: parameters, gradients and optimizer state are cut into shards, one for each rank."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from pycoll.trace import phase

from .agreement import check_same, check_same_arrays
from .clipping import clip_by_global_norm
from .driver import Driver, check_algorithm, own_communicator
from .flat import Array, Arrays, Piece, check_arrays, check_gradient, fill, hand_over, named_dtype, whole_pieces
from .units import Slots, Unit, default_units, units_of


class FullyShardedDataParallel(Driver):
    """Shards a model by units, and puts each unit together only while it computes.

    `parameters` maps names to arrays in forward order; the values are rank 0's, and the arrays are not needed after
    this.  `units` lists the names of the parameters that are gathered together, each list of one dtype; by default
    those with the same name up to the last dot.  Rank r of p holds the r-th p-th of each unit, as one flat vector:
    `shards` are these vectors by the number of their unit, which an optimizer of the rank's own updates.

        for unit in range(len(fsdp.units)):
            with fsdp.forward(unit) as parameters: ...
        for unit in reversed(range(len(fsdp.units))):
            with fsdp.backward(unit) as parameters:
                ...
                fsdp.ready(name, gradient)
        optimizer.step(fsdp.synchronize())

    The parameters inside a with block are views that are valid until its end; the next unit is gathered meanwhile if
    `prefetch` is true.  With ``reshard_after_forward=False`` units stay gathered until the next update.  With
    `param_dtype` ("float16", "bfloat16") units are gathered and computed with in that dtype, and shards stay as they
    are; gradients are averaged in `reduce_dtype`, by default that of the shards.  `offload` keeps the shards, and so
    the optimizer's work, in the host's memory where the parameters are on a device.

    Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020 (stage 3);
    Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023.
    """

    def __init__(
        self,
        parameters: Arrays,
        units: Sequence[Sequence[str]] | None = None,
        *,
        comm: MPI.Intracomm | None = None,
        prefetch: bool = True,
        reshard_after_forward: bool = True,
        param_dtype: Any = None,
        reduce_dtype: Any = None,
        offload: bool = False,
        algorithm: str | None = None,
    ) -> None:
        parameters = check_arrays("parameters", parameters)
        check_algorithm(algorithm, "allgather", "reduce_scatter")
        units = default_units(parameters) if units is None else units
        with own_communicator(comm) as self.comm:
            check_same_arrays("parameter", parameters, self.comm)
            check_same("unit", (", ".join(map(repr, names)) for names in units), self.comm)
            groups = units_of(parameters, units)
        gathered, reduced = (dtype and named_dtype(dtype) for dtype in (param_dtype, reduce_dtype))
        self._units = [
            Unit(number, group, self.comm, gathered, reduced, offload, algorithm) for number, group in enumerate(groups)
        ]
        self._home = {name: number for number, unit in enumerate(self._units) for name in unit.names}
        self._prefetch = prefetch
        kept = len(self._units) if not reshard_after_forward else 2 if prefetch else 1
        self._parameters = Slots(self._units, kept, "gathered")
        self._gradients = Slots(self._units, 2, "reduced")
        self._inside: list[int] = []  # the units inside whose blocks we are
        self._backward: int | None = None  # the unit inside whose backward block we are
        self._missing: set[str] = set()  # gradients not announced yet there

    @property
    def units(self) -> list[list[str]]:
        """The names of the parameters in each unit."""
        return [list(unit.names) for unit in self._units]

    @property
    def shards(self) -> dict[str, Array]:
        """The share of each unit that this rank has, flat; the last rank's is padded with zeros."""
        return {str(number): unit.shard for number, unit in enumerate(self._units)}

    @contextlib.contextmanager
    def forward(self, unit: int) -> Iterator[dict[str, Array]]:
        """The parameters of a unit, for its forward pass."""
        with self._entered(unit, unit + 1) as parameters, phase(f"forward of unit {unit}"):
            yield parameters

    @contextlib.contextmanager
    def backward(self, unit: int) -> Iterator[dict[str, Array]]:
        """The parameters of a unit, for its backward pass; at its end the average of its gradients begins.

        RuntimeError if `ready` was not called for all of them.
        """
        if self._backward is not None:
            raise RuntimeError(f"backward({unit}): the block of unit {self._backward} has not ended")
        with self._entered(unit, unit - 1) as parameters:
            before = self._gradients.holder(unit)
            if before is not None:
                self._units[before].finish_reducing()
            self._gradients.hold(unit)
            self._backward, self._missing = unit, set(self._units[unit].names)
            try:
                with phase(f"backward of unit {unit}"):
                    yield parameters
                missing = sorted(self._missing)
            finally:
                self._backward, self._missing = None, set()
            if missing:
                raise RuntimeError(f"backward: no gradient was announced for {', '.join(map(repr, missing))}")
            self._units[unit].start_reducing(self._gradients.vector(unit))

    def ready(self, name: str, gradient: Array) -> None:
        """Announce a parameter's gradient, within `backward` of its unit.

        ValueError for a parameter of another unit, one announced before, or a wrong shape.
        """
        if name not in self._missing:
            raise ValueError(f"name={name!r} is not a parameter of the unit at work, or was announced before")
        view = self._gradients.views(self._home[name])[name]
        gradient = check_gradient(f"the gradient of {name!r}", gradient, view)
        if gradient is not view:
            np.copyto(view, gradient, casting="same_kind")
        hand_over(view)
        self._missing.discard(name)
        self.progress()

    def progress(self) -> None:
        """Let communication go on."""
        for unit in self._units:
            unit.progress()

    def synchronize(self) -> dict[str, Array]:
        """Wait for the averages of the gradients: this rank's share of each unit, by the unit's number.

        They add up over all backward passes since the last call.  Units are gathered anew after it, with the shards
        as they are then.
        """
        for unit in self._units:
            unit.finish_reducing()
        if empty := [unit for unit in self._units if not unit.has_average]:
            raise RuntimeError(f"synchronize: no backward pass went through the unit of {', '.join(empty[0].names)}")
        self.loaded()
        return {str(number): unit.averaged() for number, unit in enumerate(self._units)}

    def zero_grad(self) -> None:
        """Forget what backward passes have averaged since the last `synchronize`."""
        for unit in self._units:
            unit.finish_reducing()
            unit.forget_average()

    def clip_grad_norm(self, gradients: Arrays, max_norm: float) -> float:
        """Scale what `synchronize` gave so that the norm over all shards is at most `max_norm`; returns the norm."""
        return clip_by_global_norm(gradients, max_norm, self.comm)

    @contextlib.contextmanager
    def _entered(self, unit: int, following: int) -> Iterator[dict[str, Array]]:
        """The parameters of a unit, with the gathering of the following one begun."""
        if not 0 <= unit < len(self._units):
            raise ValueError(f"unit={unit} is not in 0 <= unit < {len(self._units)}")
        self._start_gathering(unit)
        self._units[unit].finish_gathering()
        if self._prefetch and 0 <= following < len(self._units):
            self._start_gathering(following)
        self._inside.append(unit)
        try:
            yield self._parameters.views(unit)
        finally:
            self._inside.remove(unit)

    def _start_gathering(self, unit: int) -> None:
        before = self._parameters.holder(unit)
        if before == unit:
            return
        if before in self._inside:
            raise RuntimeError(f"unit {unit} takes the room of unit {before}, whose with block has not ended")
        if before is not None:
            self._units[before].finish_gathering()
        self._parameters.hold(unit)
        self._units[unit].start_gathering(self._parameters.vector(unit))

    def state_dict(self, full: bool = True, root: int | None = None) -> dict[str, Any]:
        """Copies of the parameters, on all ranks together: whole ones, or this rank's pieces.

        ``full=True`` gives the arrays by name, on all ranks or on `root` alone (others get {}); one unit at a time is
        put together.  ``full=False`` gives this rank's `Piece` of each parameter that it has a share of.
        """
        if not full:
            return {name: piece._replace(values=piece.values.copy()) for _, name, piece in self.pieces(self.shards)}
        state: dict[str, Any] = {}
        for unit in self._units:
            state |= unit.whole(root)
        return state

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Piece]]) -> None:
        """Set the shards: from whole arrays by name, or from the sharded states of all ranks, of however many.

        ValueError for what is missing, or has a wrong shape.
        """
        states = [dict(whole_pieces(state))] if isinstance(state, Mapping) else state
        for _, name, piece in self.pieces(self.shards):
            fill(piece, name, [found[name] for found in states if name in found])
        self.loaded()

    @property
    def saved(self) -> dict[str, Arrays]:
        """What a checkpoint holds."""
        return {"parameters": self.shards}

    @property
    def saves(self) -> bool:
        """Whether this rank's arrays go into a checkpoint: every rank's shards do."""
        return True

    def pieces(self, arrays: Arrays) -> Iterator[tuple[str, str, Piece]]:
        """Arrays like the shards as (unit's number, parameter's name, piece)."""
        for number, shard in arrays.items():
            unit = self._units[int(number)]
            for name, piece in unit.layout.pieces(shard, unit.start):
                yield number, name, piece

    def loaded(self) -> None:
        """The shards have been changed, or are about to be: gather anew."""
        for unit in self._units:
            unit.finish_gathering()
        self._parameters.forget()

    def free(self) -> None:
        """Give requests and communicator back to MPI; also at the end of a with block."""
        for unit in self._units:
            unit.finish_gathering()
            unit.finish_reducing()
        super().free()
