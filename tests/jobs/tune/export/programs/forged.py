"""Write rules that select, for three ranks, an algorithm which cannot run there: a library that reads them fails."""

import sys
from pathlib import Path

from mpi4py import MPI

from pycoll.tune.export import document
from pycoll.tune.export.command import LIBRARIES

folder, which = Path(sys.argv[1]), sys.argv[2]
primitive, algorithm = {"mpich": ("allgather", "recursive_doubling"), "ompi": ("alltoall", "two_proc")}[which]
points = [{"nbytes": 8, "most": 1023, "selected": algorithm}]
measurement = {"ranks": 3, "hosts": 1, "environment": {}, "primitives": {primitive: points}}
found = document.with_measurement(document.existing(folder), measurement)
document.write(LIBRARIES[which][1](MPI.COMM_WORLD), folder, found)
