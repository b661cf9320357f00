"""Checkpoints of parameters that are divided over ranks along an axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from mpi4py import MPI

from .driver import Driver, own_communicator
from .flat import Arrays, Piece, check_arrays


class DividedParameters(Driver):
    """Parameters of which some are divided over ranks, for `save` and `load`.

    All ranks of `comm` create it together.  Checkpoints hold whole arrays in pieces, so they can be loaded with other
    numbers of ranks, and into `DistributedDataParallel` and `FullyShardedDataParallel`.

    Parameters
    ----------
    parameters : mapping of str to array
        The arrays of this rank, which `load` changes in place: C-contiguous, with a floating-point or complex dtype.
    divided : mapping of str to tuple of (int, mpi4py.MPI.Intracomm)
        For each parameter that is divided into equal blocks, the axis and the communicator.
    comm : mpi4py.MPI.Intracomm, optional
        All ranks that train, COMM_WORLD by default.  A duplicate of it is used.
    writes : bool, default True
        Whether this rank writes its parameters.  Of replicas, only one has to.

    Raises
    ------
    ValueError
        If `divided` names a parameter or an axis that does not exist.

    Examples
    --------
    A layer of tensor parallelism::

        import tempfile

        import numpy as np
        from mpi4py import MPI
        from pycoll.parallel import ColumnParallelLinear, DividedParameters, load, save

        comm = MPI.COMM_WORLD
        layer = ColumnParallelLinear(np.ones((8, 6)))
        model = DividedParameters(layer.parameters, {name: (axis, comm) for name, axis in layer.divided.items()})
        path = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
        save(path, model)
        load(path, model)
    """

    def __init__(
        self,
        parameters: Arrays,
        divided: Mapping[str, tuple[int, MPI.Intracomm]],
        *,
        comm: MPI.Comm | None = None,
        writes: bool = True,
    ) -> None:
        self.parameters = check_arrays("parameters", parameters)
        for name, (axis, _) in divided.items():
            if name not in self.parameters:
                raise ValueError(f"divided[{name!r}]: there is no such parameter")
            if not 0 <= axis < self.parameters[name].ndim:
                raise ValueError(
                    f"divided[{name!r}]: axis {axis} of shape {self.parameters[name].shape} does not exist"
                )
        self._divided, self._writes = dict(divided), writes
        with own_communicator(comm) as self.comm:
            pass

    def pieces(self, arrays: Arrays) -> Iterator[tuple[str, str, Piece]]:
        """Split arrays into runs of elements that are contiguous in the whole array."""
        for name, array in arrays.items():
            if name not in self._divided:
                yield from super().pieces({name: array})
                continue
            axis, comm = self._divided[name]
            before, after = array.shape[:axis], array.shape[axis + 1 :]
            whole = (*before, array.shape[axis] * comm.size, *after)
            for number, run in enumerate(array.reshape(max(1, math.prod(before)), -1)):
                yield name, name, Piece((number * comm.size + comm.rank) * len(run), run, whole)

    @property
    def saves(self) -> bool:
        """Whether the arrays of this rank go into a checkpoint."""
        return self._writes
