"""Fully sharded data parallel: parameters, gradients and optimizer state are cut into shards, one for each rank."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from pycoll.primitives import names
from pycoll.trace import phase

from ..runtime.interruptions import interruptions_delayed
from .agreement import check_same, check_same_arrays
from .clipping import clip_by_global_norm
from .driver import Driver, check_algorithm, own_communicator
from .flat import Array, Arrays, Piece, check_arrays, check_gradient, fill, hand_over, named_dtype, whole_pieces
from .units import Slots, Unit, default_units, units_of


class FullyShardedDataParallel(Driver):
    """Shard a model by units, and gather each unit only while it computes.

    `parameters` maps names to arrays in forward order; the values of rank 0 are used, and the arrays are not needed
    afterwards.  `units` lists the names of the parameters that are gathered together, each list of one dtype; by
    default those with the same name up to the last dot.  Each rank holds an equal part of each unit, as one flat
    vector.  `shards` are these vectors by the number of their unit; each rank updates them with its own optimizer::

        for unit in range(len(fsdp.units)):
            with fsdp.forward(unit) as parameters: ...
        for unit in reversed(range(len(fsdp.units))):
            with fsdp.backward(unit) as parameters:
                ...
                fsdp.ready(name, gradient)
        optimizer.step(fsdp.synchronize())

    The parameters inside a with block are views that are valid until its end.  If `prefetch` is true, the next unit is
    gathered meanwhile.  With ``reshard_after_forward=False`` units stay gathered until the next update.  With
    `param_dtype` ("float16", "bfloat16") units are gathered in that dtype for computing, while the shards keep theirs.
    Gradients are averaged in `reduce_dtype`, by default the dtype of the shards.  With `offload`, the shards of
    parameters on a device are kept and updated in host memory.

    Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020 (stage 3);
    Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023.
    """

    @interruptions_delayed()
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
        algorithm: names.Sharding | None = None,
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
        self._inside: list[int] = []  # the units whose with blocks have not ended
        self._backward: int | None = None  # the unit whose backward block has not ended
        self._missing: set[str] = set()  # its gradients that are not announced yet

    @property
    def units(self) -> list[list[str]]:
        """The names of the parameters in each unit."""
        return [list(unit.names) for unit in self._units]

    @property
    def shards(self) -> dict[str, Array]:
        """The flat shard of each unit on this rank; that of the last rank is padded with zeros."""
        return {str(number): unit.shard for number, unit in enumerate(self._units)}

    @contextlib.contextmanager
    def forward(self, unit: int) -> Iterator[dict[str, Array]]:
        """The parameters of a unit, for its forward pass."""
        with self._entered(unit, unit + 1) as parameters, phase(f"forward of unit {unit}"):
            yield parameters

    @contextlib.contextmanager
    def backward(self, unit: int) -> Iterator[dict[str, Array]]:
        """The parameters of a unit, for its backward pass; at the end of the block its gradients are averaged.

        Raises RuntimeError if `ready` was not called for all of them.
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
        """Announce the gradient of a parameter, within `backward` of its unit.

        Raises ValueError for a parameter of another unit, a second gradient for the same parameter, or a wrong shape.
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
        """Wait for the averages of the gradients and return the shards of this rank, by the number of the unit.

        The averages add up over all backward passes since the last call.  Units are gathered again after this call,
        from the shards as they are then.
        """
        for unit in self._units:
            unit.finish_reducing()
        if empty := [unit for unit in self._units if not unit.has_average]:
            raise RuntimeError(f"synchronize: no backward pass went through the unit of {', '.join(empty[0].names)}")
        self.loaded()
        return {str(number): unit.averaged() for number, unit in enumerate(self._units)}

    def zero_grad(self) -> None:
        """Discard the averages of all backward passes since the last `synchronize`."""
        for unit in self._units:
            unit.finish_reducing()
            unit.forget_average()

    def clip_grad_norm(self, gradients: Arrays, max_norm: float) -> float:
        """Scale averages so that their norm over all shards is at most `max_norm`; returns the norm before."""
        return clip_by_global_norm(gradients, max_norm, self.comm)

    @contextlib.contextmanager
    def _entered(self, unit: int, following: int) -> Iterator[dict[str, Array]]:
        """The parameters of a unit, after starting to gather the following unit."""
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
            raise RuntimeError(f"unit {unit} uses the buffer of unit {before}, whose with block has not ended")
        if before is not None:
            self._units[before].finish_gathering()
        self._parameters.hold(unit)
        self._units[unit].start_gathering(self._parameters.vector(unit))

    def state_dict(self, full: bool = True, root: int | None = None) -> dict[str, Any]:
        """Copies of the whole parameters, or of the pieces of this rank; all ranks call this together.

        ``full=True`` returns the arrays by name, on all ranks or on `root` alone (the others get {}); the units are
        gathered one by one.  ``full=False`` returns a `Piece` of each parameter that this rank has a part of.
        """
        if not full:
            return {name: piece._replace(values=piece.values.copy()) for _, name, piece in self.pieces(self.shards)}
        state: dict[str, Any] = {}
        for unit in self._units:
            state |= unit.whole(root)
        return state

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Piece]]) -> None:
        """Set the shards from whole arrays by name, or from the sharded states of all ranks of any number of ranks.

        Raises ValueError for a parameter that is missing or has a wrong shape.
        """
        states = [dict(whole_pieces(state))] if isinstance(state, Mapping) else state
        for _, name, piece in self.pieces(self.shards):
            fill(piece, name, [found[name] for found in states if name in found])
        self.loaded()

    @property
    def saved(self) -> dict[str, Arrays]:
        """The arrays that a checkpoint holds."""
        return {"parameters": self.shards}

    @property
    def saves(self) -> bool:
        """Whether the arrays of this rank go into a checkpoint: the shards of every rank do."""
        return True

    def pieces(self, arrays: Arrays) -> Iterator[tuple[str, str, Piece]]:
        """Arrays like the shards, as (number of the unit, name of the parameter, piece)."""
        for number, shard in arrays.items():
            unit = self._units[int(number)]
            for name, piece in unit.layout.pieces(shard, unit.start):
                yield number, name, piece

    def loaded(self) -> None:
        """Called when the shards have changed, or are about to: the units are gathered again."""
        for unit in self._units:
            unit.finish_gathering()
        self._parameters.forget()

    def free(self) -> None:
        """Free the requests and the communicator; also called at the end of a with block."""
        for unit in self._units:
            unit.finish_gathering()
            unit.finish_reducing()
        super().free()
