"""An algorithm for the option ``--file``."""

from pycoll.schedule.moves import Recv, Send
from pycoll.schedule.registry import algorithm


@algorithm()
def star(rank, size):
    yield tuple(Send(0, []) for _ in range(rank > 0)) + tuple(Recv(other, []) for other in range(1, size * (rank == 0)))
    yield tuple(Recv(0, []) for _ in range(rank > 0)) + tuple(Send(other, []) for other in range(1, size * (rank == 0)))
