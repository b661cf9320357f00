"""Fully sharded data parallel: each rank holds one shard of the parameters, gradients and optimizer state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from pycoll.primitives import names
from pycoll.trace import phase

from ..runtime.interruptions import interruptions_delayed
from .agreement import check_same, check_same_arrays, check_same_options
from .clipping import clip_by_global_norm
from .driver import Driver, check_algorithm, own_communicator
from .flat import Array, Arrays, Piece, check_arrays, check_gradient, fill, hand_over, trained_dtype, whole_pieces
from .units import Unit, UnitBuffers, default_units, units_of


class FullyShardedDataParallel(Driver):
    """Shard a model by units, and gather each unit only while it is in use.

    All ranks of `comm` create the driver together and call its methods in the same order.

    Parameters
    ----------
    parameters : mapping of str to array
        The arrays of the model, in forward order, with a floating-point or complex dtype.  The driver takes the values
        of rank 0 and does not use the arrays afterwards.
    units : sequence of sequences of str, optional
        The names of the parameters that are gathered together.  Each parameter is in one unit, and each unit has one
        dtype.  By default, parameters whose names agree up to the last dot form a unit.
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, COMM_WORLD by default.  The driver uses a duplicate of it.
    prefetch : bool
        Gather the next unit during the computation of the current one.
    reshard_after_forward : bool
        If false, units stay gathered until the next update.
    param_dtype : dtype or "bfloat16", optional
        Dtype of the gathered units, for example "float16".  The shards keep the dtype of the parameters.
    reduce_dtype : dtype or "bfloat16", optional
        Dtype in which gradients are averaged, by default the dtype of the shards.
    offload : bool
        Keep and update the shards in host memory if the parameters are in GPU memory.
    algorithm : str, optional
        Algorithm of both the all-gather and the reduce-scatter; None lets pycoll choose.

    Raises
    ------
    TypeError
        If parameters are not a mapping from str to arrays, are integers, or are in different memories; if another dtype
        has no averages, or would lose imaginary parts; or if "bfloat16" is used without the package ml_dtypes.
    ValueError
        If an array is read-only or not C-contiguous, two parameters share memory, units are invalid, or the algorithm
        is unknown.  Also on all ranks if names, shapes, dtypes or units differ between ranks; the message names the
        first difference.

    Notes
    -----
    Each rank holds an equal part of each unit, as one flat vector.  `shards` maps the number of the unit, as a
    str, to this vector.  Each rank updates its shards with an optimizer of its own.

    The parameters inside a ``with`` block are views that are valid until the end of the block.

    Examples
    --------
    One step of a model with two units::

        import numpy as np
        from pycoll.parallel import SGD, FullyShardedDataParallel

        fsdp = FullyShardedDataParallel({"first.weight": np.ones((8, 4)), "last.weight": np.ones((4, 1))})
        optimizer = SGD(fsdp.shards, lr=0.01)
        inputs, targets = np.ones((16, 8)), np.zeros((16, 1))
        with fsdp.forward(0) as parameters:
            hidden = inputs @ parameters["first.weight"]
        with fsdp.forward(1) as parameters:
            error = (hidden @ parameters["last.weight"] - targets) / 16
        with fsdp.backward(1) as parameters:
            fsdp.ready("last.weight", hidden.T @ error)
            error = error @ parameters["last.weight"].T
        with fsdp.backward(0):
            fsdp.ready("first.weight", inputs.T @ error)
        optimizer.step(fsdp.synchronize())

    References
    ----------
    Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020 (stage 3).
    https://doi.org/10.1109/SC41405.2020.00024

    Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023.
    https://doi.org/10.14778/3611540.3611569
    """

    @interruptions_delayed()
    def __init__(
        self,
        parameters: Arrays,
        units: Sequence[Sequence[str]] | None = None,
        *,
        comm: MPI.Comm | None = None,
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
        gathered, reduced = (
            None if dtype is None else trained_dtype(what, dtype, parameters)
            for what, dtype in (("param_dtype", param_dtype), ("reduce_dtype", reduce_dtype))
        )
        with own_communicator(comm) as self.comm:
            check_same_arrays("parameter", parameters, self.comm)
            check_same("unit", (", ".join(map(repr, names)) for names in units), self.comm)
            check_same_options(
                self.comm,
                prefetch=prefetch,
                reshard_after_forward=reshard_after_forward,
                param_dtype=gathered,
                reduce_dtype=reduced,
                algorithm=algorithm,
            )
            groups = units_of(parameters, units)
        self._units = [
            Unit(number, group, self.comm, gathered, reduced, offload, algorithm) for number, group in enumerate(groups)
        ]
        self._home = {name: number for number, unit in enumerate(self._units) for name in unit.names}
        self._prefetch = prefetch
        kept = len(self._units) if not reshard_after_forward else 2 if prefetch else 1
        self._parameters = UnitBuffers(self._units, kept, "gathered")
        self._gradients = UnitBuffers(self._units, 2, "reduced")
        self._inside: list[int] = []  # the units whose with blocks have not ended
        self._backward: int | None = None  # the unit whose backward block has not ended
        self._missing: set[str] = set()  # the parameters of that unit without a gradient yet

    @property
    def units(self) -> list[list[str]]:
        """The names of the parameters in each unit."""
        return [list(unit.names) for unit in self._units]

    @property
    def shards(self) -> dict[str, Array]:
        """The flat shard of each unit on this rank; the last shards of a unit may end with zeros as padding."""
        return {str(number): unit.shard for number, unit in enumerate(self._units)}

    @contextlib.contextmanager
    def forward(self, unit: int) -> Iterator[dict[str, Array]]:
        """Gather a unit for its forward pass; the block gets its parameters by name.

        Raises
        ------
        ValueError
            If the number is not a unit.
        RuntimeError
            If the buffer of the unit is in use by another block that has not ended.
        """
        with self._entered(unit, unit + 1) as parameters, phase(f"forward of unit {unit}"):
            yield parameters

    @contextlib.contextmanager
    def backward(self, unit: int) -> Iterator[dict[str, Array]]:
        """Gather a unit for its backward pass; the end of the block starts to average its gradients.

        The block gets the parameters of the unit by name, and calls `ready` once for each of them.

        Raises
        ------
        ValueError
            If the number is not a unit.
        RuntimeError
            If another backward block has not ended, or if another block uses the buffer of the unit.  Also at the end
            of the block, if a gradient is missing.
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
                raise RuntimeError(f"backward({unit}): ready was not called for {', '.join(map(repr, missing))}")
            self._units[unit].start_reducing(self._gradients.vector(unit))

    def ready(self, name: str, gradient: Array) -> None:
        """Pass the gradient of a parameter, within the `backward` block of its unit.

        Parameters
        ----------
        name : str
            The name of the parameter.
        gradient : array
            Its gradient, with the shape of the parameter and in the same memory.  It is copied.

        Raises
        ------
        ValueError
            If called outside a `backward` block, if the parameter belongs to another unit or already has a gradient, or
            if the shape is wrong.
        TypeError
            If a gradient is not in the same memory as its parameter, or cannot be cast to `reduce_dtype`.
        """
        if name not in self._missing:
            raise ValueError(f"name={name!r} {self._why_not(name)}")
        view = self._gradients.views(self._home[name])[name]
        gradient = check_gradient(f"the gradient of {name!r}", gradient, view)
        if gradient is not view:
            np.copyto(view, gradient, casting="same_kind")
        hand_over(view)
        self._missing.discard(name)
        self.progress()

    def _why_not(self, name: str) -> str:
        """Why a parameter cannot have a gradient now, in words."""
        home = self._home.get(name)
        if home is None:
            return "is not a parameter"
        if self._backward is None:
            return f"is a parameter of unit {home}: call ready within the backward block of this unit"
        if home != self._backward:
            return f"is a parameter of unit {home}, but this is the backward block of unit {self._backward}"
        return "already has a gradient in this backward block"

    def progress(self) -> None:
        """Advance communication."""
        for unit in self._units:
            unit.progress()

    def synchronize(self) -> dict[str, Array]:
        """Wait for the averaged gradients and return the shards of this rank.

        The averages of all backward passes since the last call are added up.  Update the shards after this call: the
        next use of a unit gathers it again.

        Returns
        -------
        dict of str to array
            The flat shard of the average of each unit, with the keys and shapes of `shards`.  It is valid until the
            next backward pass.

        Raises
        ------
        RuntimeError
            If a unit had no backward pass since the last call.
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
        """Scale averages so that their norm over all shards is at most `max_norm`; return the norm before scaling."""
        return clip_by_global_norm(gradients, max_norm, self.comm)

    @contextlib.contextmanager
    def _entered(self, unit: int, following: int) -> Iterator[dict[str, Array]]:
        """Gather a unit for the block, and start to gather the following unit."""
        if not 0 <= unit < len(self._units):
            raise ValueError(f"unit={unit} is not in 0 <= unit < {len(self._units)}")
        self._start_gathering(unit)
        self._units[unit].finish_gathering()
        is_next = self._prefetch and 0 <= following < len(self._units)
        if is_next and self._parameters.holder(following) not in self._inside:
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
        self._units[unit].start_gathering(self._parameters.vector(unit))
        self._parameters.hold(unit)

    def state_dict(self, full: bool = True, root: int | None = None) -> dict[str, Any]:
        """Return copies of the whole parameters, or of the pieces on this rank.

        Parameters
        ----------
        full : bool
            If true, gather whole parameters, unit by unit; all ranks call this together.
        root : int, optional
            The only rank that gets the whole parameters; the other ranks get {}.  By default all ranks get them.

        Returns
        -------
        dict of str to array or `Piece`
            With ``full=True`` the arrays by name.  Otherwise a `Piece` for each parameter with elements on this rank.
        """
        if not full:
            return {name: piece._replace(values=piece.values.copy()) for _, name, piece in self.pieces(self.shards)}
        state: dict[str, Any] = {}
        for unit in self._units:
            state |= unit.whole(root)
        return state

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Piece]]) -> None:
        """Set the shards of this rank.

        Parameters
        ----------
        state : mapping of str to array, or sequence of mappings of str to `Piece`
            Whole arrays by name, or the sharded states of all ranks.  The number of ranks that made the sharded states
            may differ from the number of ranks here.

        Raises
        ------
        ValueError
            If a parameter is missing, is incomplete or has the wrong shape.
        """
        states = [dict(whole_pieces(state))] if isinstance(state, Mapping) else state
        for _, name, piece in self.pieces(self.shards):
            fill(piece, name, [found[name] for found in states if name in found])
        self.loaded()

    @property
    def saved(self) -> dict[str, Arrays]:
        """The arrays that a checkpoint holds: the shards."""
        return {"parameters": self.shards}

    @property
    def saves(self) -> bool:
        """Whether the arrays of this rank go into a checkpoint: always, because each rank has other shards."""
        return True

    @property
    def replicated(self) -> bool:
        """False: each rank has a part of the state."""
        return False

    def pieces(self, arrays: Arrays) -> Iterator[tuple[str, str, Piece]]:
        """Split arrays with the keys and shapes of `shards` into (number of the unit, name of the parameter, piece)."""
        for number, shard in arrays.items():
            unit = self._units[int(number)]
            for name, piece in unit.layout.pieces(shard, unit.start):
                yield number, name, piece

    def loaded(self) -> None:
        """Discard gathered units, because the shards have changed or are about to change."""
        for unit in self._units:
            unit.finish_gathering()
        self._parameters.forget()

    def free(self) -> None:
        """Free the requests and the communicator.  The end of a ``with`` block calls this too."""
        for unit in self._units:
            unit.finish_gathering()
            unit.finish_reducing()
        super().free()
