"""Collectives of several algorithms and forms."""

import numpy as np

import pycoll

pycoll.attach()
vector = np.ones(1 << 12)
for algorithm in ("ring", "tree", "bruck_whole"):
    pycoll.allreduce(vector, algorithm=algorithm)
pycoll.barrier(algorithm="dissemination")
pycoll.iallreduce(vector, algorithm="ring").wait()
