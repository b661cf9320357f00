"""A right algorithm with wrong formulas, and a wrong algorithm."""

from pycoll.schedule.moves import Recv, Send
from pycoll.schedule.registry import algorithm


@algorithm()
def shifts(rank, size):
    """Dissemination.

    Rounds: p
    Messages: lg(p)
    Cost: p*alpha + p*beta
    Source: a test.
    """
    for distance in (1 << bit for bit in range((size - 1).bit_length())):
        yield Send((rank + distance) % size, []), Recv((rank - distance) % size, [])


@algorithm()
def idle(rank, size):
    yield ()
