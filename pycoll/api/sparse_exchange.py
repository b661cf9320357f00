"""Messages between ranks of which only the senders know who receives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import index
from typing import Any

import numpy as np
from mpi4py import MPI

from ..arguments.arrays import send_array
from ..arguments.memory import is_host
from ..base.errors import WrongRank
from ..runtime.attach import attach
from ..runtime.interruptions import interruptions_delayed
from ..runtime.missing import missing
from ..runtime.progress import until
from ..runtime.sparse import Exchange


@interruptions_delayed()
def sparse_exchange(
    destinations: Sequence[int], buffers: Sequence[Any], *, comm: MPI.Comm | None = None
) -> list[tuple[int, np.ndarray]]:
    """Send buffers to some ranks, and receive those that other ranks send to this one.

    All ranks of the communicator call this together, also those that send nothing.  Nobody needs to know who sends:
    the cost depends on the number of messages, and only by a barrier on the number of ranks.

    Parameters
    ----------
    destinations : sequence of int
        The rank that gets each of the buffers; a rank may occur several times.
    buffers : sequence of buffers
        One for each destination, of any shapes and dtypes.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.

    Returns
    -------
    list of (int, array)
        The source and the contents of each message that this rank has received, by source, and from one source in the
        order in which they were sent.

    Raises
    ------
    TypeError
        If a destination is not an integer, or a buffer is not one, or is in GPU memory.
    ValueError
        If a destination is not a rank, or there are more or fewer buffers than destinations.

    References
    ----------
    Hoefler, Siebert and Lumsdaine, "Scalable communication protocols for dynamic sparse data exchange", PPoPP 2010.
    """
    channel = attach(comm)
    channel.check_usable()
    ranks = [_rank(position, each, channel.size) for position, each in enumerate(destinations)]
    arrays = [send_array(f"buffers[{position}]", buffer) for position, buffer in enumerate(buffers)]
    if len(ranks) != len(arrays):
        raise ValueError(f"there are {len(arrays)} buffers for {len(ranks)} destinations")
    for position, array in enumerate(arrays):
        if not is_host(array):
            raise TypeError(f"buffers[{position}] is in GPU memory, which sparse_exchange does not support")
    private, what = channel.comm, f"sparse_exchange on rank {channel.comm.rank} of {channel.size}"
    exchange = Exchange(private, (next(channel.tags), next(channel.tags)), ranks, arrays)
    with channel.abandoned_on_failure(what):
        until(exchange.advance, what, partial(missing, private, "called it"))
    return sorted(exchange.received, key=lambda message: message[0])


def _rank(position: int, given: Any, size: int) -> int:
    try:
        rank = index(given)
    except TypeError:
        raise TypeError(f"destinations[{position}]={given!r} is not an integer") from None
    if not 0 <= rank < size:
        raise WrongRank(f"destinations[{position}]={rank} is not a rank of the communicator of size {size}")
    return rank
