"""Search for an all-reduce on an irregular network, prove it, and compare it with the catalogue in a simulation.

The network in ``islands.json`` has three hosts of eight GPUs.  Inside a host, a GPU has links of 25 or 50 GB/s to four
others; one link of the second host is broken, and one of the third host has lost half of its bandwidth.  Between the
hosts there are links of 12.5 GB/s, and two of 3 GB/s.

Run it with ``python examples/synthesis.py``; no MPI is needed.  The example ``own_algorithm.py`` runs an algorithm of a
user; that one needs MPI.
"""

from pathlib import Path

import pycoll
from pycoll.schedule.proof import prove
from pycoll.simulate import Network

LINKS = str(Path(__file__).with_name("islands.json"))
NETWORK = Network(gamma=1e-12)  # the GPUs combine 1 TB/s
NBYTES = 256 << 20

found = pycoll.synthesize(LINKS, "allreduce", nbytes=NBYTES, chunks=4, seeds=2, network=NETWORK)
counts = prove(found.algorithm, 24)  # raises an error if a contribution is missing, or counted twice
assert sum(counts.sent) == 2 * 23 * 24 * 4  # blocks: the fewest possible

names = pycoll.algorithms("allreduce")
times = {
    name: pycoll.simulate("allreduce", algorithm=name, ranks=24, nbytes=NBYTES, network=NETWORK, topology=LINKS).time
    for name in names
    if name != "native"
}
fastest = min(times, key=times.__getitem__)
ratio = times[fastest] / found.time
print(
    f"found {found.time * 1e6:.0f} us; {fastest}, the fastest of the catalogue, {times[fastest] * 1e6:.0f} us: "
    f"{ratio:.1f} times as fast"
)
assert ratio > 3 and found.time < 1.9 * found.bound
