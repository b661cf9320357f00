"""Simulate all-reduce algorithms on a network model, and find the fastest algorithm for each size.

Run it with ``python examples/simulation.py``; no MPI is needed.
"""

import pycoll
from pycoll.simulate import Link, Network

RANKS = 48
NETWORK = Network(between=Link(alpha=2e-6, beta=1 / 12.5e9, overhead=5e-7), gamma=1e-10)
ALGORITHMS = ["tree", "recursive_doubling", "rabenseifner", "ring"]


def times(nbytes: int) -> dict[str, float]:
    """Return the simulated time of an all-reduce by each algorithm, in seconds."""
    return {
        name: pycoll.simulate("allreduce", algorithm=name, ranks=RANKS, nbytes=nbytes, network=NETWORK).time
        for name in ALGORITHMS
    }


fastest = {}
for nbytes in (64, 16 << 10, 1 << 20, 64 << 20):
    seconds = times(nbytes)
    fastest[nbytes] = min(seconds, key=seconds.__getitem__)
    print(f"{nbytes:9} bytes: " + ", ".join(f"{name} {1e6 * value:.1f} us" for name, value in seconds.items()))
# short vectors need few rounds, long vectors few bytes
assert list(fastest.values()) == ["recursive_doubling", "recursive_doubling", "rabenseifner", "rabenseifner"]

# a rank that starts late delays all other ranks
late = pycoll.simulate("allreduce", algorithm="ring", ranks=8, nbytes=1 << 20, network=NETWORK, delays={3: 1e-3})
on_time = pycoll.simulate("allreduce", algorithm="ring", ranks=8, nbytes=1 << 20, network=NETWORK)
assert 0.9e-3 < late.time - on_time.time < 1.1e-3
assert late.waiting.argmin() == 3
print(f"fastest: {', '.join(fastest.values())}; with rank 3 late by 1 ms: {1e6 * late.time:.0f} us")
