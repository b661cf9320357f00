"""Nonblocking calls on numbers known to every rank, their expected results, and ways to complete them."""

import time
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.schedule.registry import PRIMITIVES, algorithms_of
from tests.mpi.native import RANK, SIZE, WORLD

PAIRS = [(primitive, algorithm) for primitive in PRIMITIVES for algorithm in [*algorithms_of(primitive), "native"]]
LARGE = 1 << 19  # elements: 4 MiB, above every eager limit
RIGHT, LEFT = (RANK + 1) % SIZE, (RANK - 1) % SIZE

pycoll.attach(WORLD)  # otherwise the first nonblocking call would attach it


class Case(NamedTuple):
    """The arguments of a call by name, its input, and its expected output; input and output are flat or None."""

    given: dict
    send: np.ndarray | None
    expected: np.ndarray | None


def case(primitive, comm=WORLD, seed=0, count=5, root=0):
    """Return a case on numbers known to every rank; blocks of v-variants have 0 to 3 times `count` elements."""
    kind, rank, size = PRIMITIVES[primitive], comm.rank, comm.size

    def block(source, to):
        length = (source + 2 * to) % 4 * count if kind.varies else count
        return np.random.default_rng([seed, source, to]).integers(0, 1000, length)

    def own(source):
        return block(source, source)

    ranks = range(size)
    at_root = not kind.rooted or rank == root
    send = expected = None
    if kind.takes_all:
        send = np.concatenate([block(rank, to) for to in ranks]) if at_root else None
    elif primitive != "barrier":
        send = own(rank)
    if primitive == "bcast":
        expected = own(root)
    elif primitive == "reduce_scatter":
        expected = sum(block(source, rank) for source in ranks)
    elif kind.reduces and at_root:
        contributors = list(kind.contributors(rank, size))
        expected = sum(map(own, contributors)) if contributors else None
    elif kind.rooted and kind.takes_all:
        expected = block(root, rank)
    elif kind.takes_all:
        expected = np.concatenate([block(source, rank) for source in ranks])
    elif kind.gives_all and at_root:
        expected = np.concatenate(list(map(own, ranks)))

    given = {"comm": comm} | ({"root": root} if kind.rooted else {})
    recv = None if expected is None else np.zeros_like(expected)
    if primitive == "bcast":
        given["buf"] = send = send.copy() if rank == root else recv
    elif primitive != "barrier":
        given |= {"sendbuf": send, "recvbuf": recv}
    if kind.varies:
        if kind.takes_all and at_root:
            given["sendbuf"] = _spec(primitive, send, [block(rank, to).size for to in ranks])
        if kind.gives_all and at_root:
            sources = [own(source) if not kind.takes_all else block(source, rank) for source in ranks]
            given["recvbuf"] = _spec(primitive, recv, [came.size for came in sources])
    return Case(given, send, expected)


def _spec(primitive, array, counts):
    if primitive != "alltoallw":
        return [array, counts]
    return [array, counts, [8 * sum(counts[:peer]) for peer in range(len(counts))], [MPI.INT64_T] * len(counts)]


def begin(primitive, one, algorithm=None):
    return getattr(pycoll, f"i{primitive}")(**one.given, algorithm=algorithm)


def check(result, one):
    if one.expected is not None:
        np.testing.assert_array_equal(result, one.expected)


def wait_by_testing(request):
    while not (outcome := request.test())[0]:
        time.sleep(0)
    return outcome[1]


def finish_all(requests, order):
    return dict(zip(order, pycoll.waitall([requests[i] for i in order])))


def finish_any(requests, order):
    results, left = {}, list(order)
    while left:
        at, result = pycoll.waitany([requests[i] for i in left])
        results[left.pop(at)] = result
    return results


def finish_by_testing_all(requests, order):
    while not (outcome := pycoll.testall([requests[i] for i in order]))[0]:
        time.sleep(0)
    return dict(zip(order, outcome[1]))


def concatenate(incoming, inout, datatype):
    """Concatenate numbers by their digits: associative, not commutative."""
    left, right = np.frombuffer(incoming, "i8"), np.frombuffer(inout, "i8")
    right[...] = left * 10 ** np.char.str_len(right.astype("U")) + right
