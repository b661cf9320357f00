"""A solution of each challenge; those who want to solve them themselves do not read on."""

from pycoll.schedule.cuts import per_rank
from pycoll.schedule.moves import AFTER, BEFORE, Recv, Reduce, Send


def algorithm(**_):
    """Register nothing: the texts of these functions are solutions."""
    return lambda generator: generator


@algorithm()
def chain(rank, size, root):
    place = (rank - root) % size
    if place > 0:
        yield (Recv((rank - 1) % size, [0]),)
    if place < size - 1:
        yield (Send((rank + 1) % size, [0]),)


@algorithm()
def forward(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield Send(right, [(rank - step) % size]), Recv(left, [(left - step) % size])


@algorithm()
def everyone_waits(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield Send(right, [(rank - step) % size]), Recv(left, [(left - step) % size])


@algorithm()
def release(rank, size):
    if rank > 0:
        yield (Send(0, []),)
        yield (Recv(0, []),)
    for move in (Recv, Send) if rank == 0 else ():
        for other in range(1, size):
            yield (move(other, []),)


@algorithm()
def any_root(rank, size, root):
    if rank != root:
        yield (Send(root, [rank]),)
    for other in range(size) if rank == root else []:
        if other != root:
            yield (Recv(other, [other]),)


@algorithm()
def rank_order(rank, size, root):
    for other in range(root - 1, -1, -1) if rank == root else []:
        yield (Reduce(other, [0], BEFORE),)
    for other in range(root + 1, size) if rank == root else []:
        yield (Reduce(other, [0], AFTER),)
    if rank != root:
        yield (Send(root, [0]),)


@algorithm(ordered=False)
def counted_twice(rank, size):
    if rank > 0:
        yield (Reduce(rank - 1, [0], BEFORE),)
    if rank < size - 1:
        yield (Send(rank + 1, [0]),)
        yield (Recv(rank + 1, [0]),)
    if rank > 0:
        yield (Send(rank - 1, [0]),)


@algorithm()
def logarithm(rank, size, root):
    place, distance = (rank - root) % size, 1
    while distance < size:
        if place < distance and place + distance < size:
            yield (Send((rank + distance) % size, [0]),)
        elif distance <= place < 2 * distance:
            yield (Recv((rank - distance) % size, [0]),)
        distance *= 2


@algorithm()
def one_at_a_time(rank, size):
    for step in range(1, size):
        to, source = (rank + step) % size, (rank - step) % size
        yield Send(to, [(rank, to)]), Recv(source, [(source, rank)])


@algorithm(ordered=False)
def blank(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(1, size):
        yield Send(right, [(rank - step) % size]), Reduce(left, [(left - step) % size])


@algorithm(cut=per_rank, ordered=False)
def half_the_bytes(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(1, size):
        yield Send(right, [(rank - step) % size]), Reduce(left, [(left - step) % size])
    for step in range(size - 1):
        yield Send(right, [(rank - step) % size]), Recv(left, [(left - step) % size])


@algorithm(ordered=False)
def five_ranks(rank, size):
    most = 1 << size.bit_length() - 1
    if rank >= most:
        yield (Send(rank - most, [0]),)
        yield (Recv(rank - most, [0]),)
        return
    if rank + most < size:
        yield (Reduce(rank + most, [0]),)
    distance = 1
    while distance < most:
        yield Send(rank ^ distance, [0]), Reduce(rank ^ distance, [0], AFTER if rank & distance == 0 else BEFORE)
        distance *= 2
    if rank + most < size:
        yield (Send(rank + most, [0]),)
