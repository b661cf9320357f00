"""Wrong algorithms: the first one waits forever, the second one does nothing."""

from pycoll.schedule.moves import Recv, Send
from pycoll.schedule.registry import algorithm


@algorithm()
def mine(rank, size):
    yield (Send((rank + 1) % size, [rank]),)
    yield (Recv((rank - 1) % size, [(rank - 1) % size]),)


@algorithm()
def idle(rank, size):
    yield ()
