"""Reduce with user-defined operations: one that commutes, and one that does not.

Run it with ``mpiexec -n 4 python examples/user_defined.py``.
"""

from typing import Any

import numpy as np
from mpi4py import MPI

import pycoll


def log_add(invec: Any, inoutvec: Any, datatype: MPI.Datatype) -> None:
    """Compute log(exp(left) + exp(right))."""
    left, right = np.frombuffer(invec), np.frombuffer(inoutvec)
    np.logaddexp(left, right, out=right)


def compose(invec: Any, inoutvec: Any, datatype: MPI.Datatype) -> None:
    """Compose two affine maps, the left one applied first; a + bj represents the map from x to a*x + b."""
    left, right = np.frombuffer(invec, dtype=complex), np.frombuffer(inoutvec, dtype=complex)
    right[...] = left.real * right.real + 1j * (right.real * left.imag + right.imag)


pycoll.abort_on_exception()
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size

# the logarithm of the normalizer of a softmax over scores that are distributed over the ranks
scores = np.random.default_rng(0).normal(scale=500, size=(size, 1000))
LOG_ADD = MPI.Op.Create(log_add, commute=True)
total = pycoll.allreduce(scores[rank], op=LOG_ADD, algorithm="ring")
assert np.allclose(total, np.logaddexp.reduce(scores))

# the recurrence x = a*x + b over the ranks, in rank order
COMPOSE = MPI.Op.Create(compose, commute=False)
maps = np.random.default_rng(1).normal(size=(size, 500)) + 1j
upto = pycoll.scan(maps[rank], op=COMPOSE)
x = np.full(500, 3.0)
for one in maps[: rank + 1]:
    x = one.real * x + one.imag
assert np.allclose(upto.real * 3.0 + upto.imag, x)

# an algorithm that does not keep rank order raises ValueError
try:
    pycoll.allreduce(maps[rank], op=COMPOSE, algorithm="ring")
except ValueError as error:
    refusal = str(error)
else:
    raise AssertionError("the ring must not run an operation that does not commute")
if rank == 0:
    print(f"{size} ranks: log of the sum of exponentials {total[0]:.3f}, last element of the recurrence {x[-1]:.3f}")
    print(f"refused: {refusal}")
LOG_ADD.Free()
COMPOSE.Free()
