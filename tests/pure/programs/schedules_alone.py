"""Prove, simulate and draw without MPI."""

import sys

import pycoll
import pycoll.compiler.programs
import pycoll.costs
import pycoll.draw.__main__
import pycoll.prove
import pycoll.simulate.__main__
from pycoll.schedule.proof import prove
from pycoll.schedule.registry import find

prove(find("allreduce", "ring"), 4)
pycoll.simulate("allreduce", algorithm="ring", ranks=4, nbytes=8)
assert not any(name.startswith("mpi4py") for name in sys.modules), "mpi4py was loaded"
