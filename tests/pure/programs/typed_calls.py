"""Calls that type checkers must accept."""

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.simulate import Network

a = np.ones(4)
pycoll.allreduce(a, op="max", algorithm="ring")
pycoll.allreduce(a, op=pycoll.AVG)
pycoll.iallreduce(a, op=MPI.SUM).wait()
for name in pycoll.algorithms("allreduce"):
    pycoll.allreduce(a, algorithm=name)
with pycoll.trace("DIR", events=1000), pycoll.trace.phase("forward"):
    pass
network: Network = pycoll.simulate.Network(pycoll.simulate.Link(alpha=1e-6))
pycoll.allreduce(a, algorithm=pycoll.AlgorithmName(input()))
pycoll.reduce_scatter(a, algorithm="pairwise")
pycoll.iallgather(a, algorithm="bruck").wait()
pycoll.bcast_init(a, algorithm="native").Start()
comm = pycoll.Comm(MPI.COMM_WORLD)
comm.Allreduce(a, a, op="max", algorithm="ring")
request: pycoll.Request = comm.Iallreduce(a, a, op="max", algorithm="ring")
plain: pycoll.Request = comm.Ibcast([a, MPI.DOUBLE], 0)
pycoll.waitall([request, plain, comm.Ibarrier(algorithm="tree")])
persistent: pycoll.Persistent = comm.Allreduce_init(a, a, MPI.SUM, MPI.INFO_NULL, algorithm="ring")
with comm.Gatherv_init(a, None, root=1, algorithm="tree") as gathering:
    gathering.Start()
seconds: float = pycoll.simulate("bcast", algorithm="ring", ranks=4, nbytes=8, network=network).time
