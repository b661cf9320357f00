"""A user-defined all-reduce algorithm.  The file has the name of the primitive that its algorithms implement."""

from pycoll.schedule.moves import AFTER, Recv, Reduce, Schedule, Send
from pycoll.schedule.registry import algorithm


@algorithm()
def chain(rank: int, size: int) -> Schedule:
    """Reduce from rank to rank, from the last rank to rank 0; then send the result back from rank to rank.

    Rounds: 2*(p-1)
    Messages: 2 if p > 2 else 1
    Sent: (2 if p > 2 else 1)*Z
    Received: (2 if p > 2 else 1)*Z
    Cost: 2*(p-1)*alpha + 2*(p-1)*Z*beta + (p-1)*Z*gamma
    Source: this example.
    """
    if rank < size - 1:
        yield (Reduce(rank + 1, [0], AFTER),)
    if rank > 0:
        yield (Send(rank - 1, [0]),)
        yield (Recv(rank - 1, [0]),)
    if rank < size - 1:
        yield (Send(rank + 1, [0]),)
