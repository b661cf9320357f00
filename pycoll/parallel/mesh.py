"""A mesh of ranks, with a communicator for each axis."""

from __future__ import annotations

import math
from types import TracebackType

from mpi4py import MPI

import pycoll

from ..base.mpi import host_names
from ..base.numbers import check_positive

_TAG = 1  # of the messages that create communicators


class Mesh:
    """Arrange the ranks of a communicator in a grid with named axes, for several kinds of parallelism at once.

    All ranks of `comm` create the mesh together.  The ranks of the last axis are neighbors, then those of the axis
    before it.  Ranks on the same host are numbered one after the other, so that the last axes lie inside hosts if their
    sizes divide the numbers of ranks on the hosts.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, COMM_WORLD by default.
    **axes : int
        The size of each axis, in this order, for example ``dp=2, pp=2, tp=2``.

    Attributes
    ----------
    comm : mpi4py.MPI.Intracomm
        The communicator of all ranks.
    axes : dict of str to int
        The sizes.
    coordinates : dict of str to int
        The position of this rank on each axis.

    Raises
    ------
    TypeError
        If there are no axes, or a size is not an integer.
    ValueError
        If a size is not positive, or the product of the sizes is not the number of ranks.

    Examples
    --------
    On 4 ranks, gradients are averaged over ``dp``, and a weight is divided over ``tp``; on 2 ranks, ``dp`` has one::

        from mpi4py import MPI
        import numpy as np
        from pycoll.parallel import ColumnParallelLinear, DistributedDataParallel, Mesh

        mesh = Mesh(dp=MPI.COMM_WORLD.size // 2, tp=2)
        layer = ColumnParallelLinear(np.ones((8, 6)), comm=mesh["tp"])
        driver = DistributedDataParallel(layer.parameters, comm=mesh["dp"])
    """

    def __init__(self, comm: MPI.Comm | None = None, /, **axes: int) -> None:
        self.comm = MPI.COMM_WORLD if comm is None else comm
        self.axes = axes
        _check(axes, self.comm.size)
        self._order = _by_host(self.comm)  # the rank at each position
        self.coordinates = self._coordinates_at(self._order.index(self.comm.rank))
        self._comms: dict[tuple[str, ...], pycoll.Comm] = {}

    def __getitem__(self, names: str | tuple[str, ...]) -> pycoll.Comm:
        """Return the communicator of the ranks that differ from this one on some axes only.

        These ranks ask for it together the first time; later, it is the same object.  With several axes, the ranks are
        numbered in the order of `axes`.

        Parameters
        ----------
        names : str or tuple of str
            The axes, for example ``mesh["tp"]`` or ``mesh["dp", "tp"]``.

        Returns
        -------
        pycoll.Comm
            The communicator.  The mesh frees it.

        Raises
        ------
        KeyError
            If there is no such axis, or an axis is given twice.
        """
        wanted = (names,) if isinstance(names, str) else tuple(names)
        if not wanted or len(set(wanted)) != len(wanted) or not set(wanted) <= set(self.axes):
            raise KeyError(f"{names!r}: the axes of this mesh are {', '.join(self.axes)}")
        key = tuple(name for name in self.axes if name in wanted)
        if key not in self._comms:
            self._comms[key] = self._create(key)
        return self._comms[key]

    def _create(self, varying: tuple[str, ...]) -> pycoll.Comm:
        fixed = {name: at for name, at in self.coordinates.items() if name not in varying}
        members = [rank for at, rank in enumerate(self._order) if fixed.items() <= self._coordinates_at(at).items()]
        everyone = self.comm.Get_group()
        group = everyone.Incl(members)
        try:
            return pycoll.Comm(MPI.Intracomm(self.comm).Create_group(group, _TAG))
        finally:
            group.Free()
            everyone.Free()

    def _coordinates_at(self, position: int) -> dict[str, int]:
        found = {}
        for name, size in reversed(self.axes.items()):
            position, found[name] = divmod(position, size)
        return {name: found[name] for name in self.axes}

    def free(self) -> None:
        """Free the communicators, which must not be used any more; all ranks call this together."""
        while self._comms:
            self._comms.pop(min(self._comms)).Free()

    def __enter__(self) -> Mesh:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.free()

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.axes.items())
        return f"<Mesh({sizes}) at {self.coordinates}>"


def _check(axes: dict[str, int], ranks: int) -> None:
    if not axes:
        raise TypeError("a mesh needs at least one axis, for example Mesh(dp=2, tp=2)")
    for name, size in axes.items():
        check_positive(name, size, "number of ranks")
    product = math.prod(axes.values())
    if product == ranks:
        return
    sizes = " * ".join(f"{name}={size}" for name, size in axes.items())
    fitting = [f"{name}={ranks // (product // size)}" for name, size in axes.items() if ranks % (product // size) == 0]
    hint = f"; {' or '.join(fitting)} would fit" if fitting else f"; start {product} ranks"
    raise ValueError(f"{sizes} is {product}, but the communicator has {ranks} ranks{hint}")


def _by_host(comm: MPI.Comm) -> list[int]:
    """The ranks, those of a host one after the other."""
    names = host_names(MPI.Intracomm(comm))
    return sorted(range(comm.size), key=lambda rank: (names.index(names[rank]), rank))
