"""Fail before MPI is imported or, with the argument "import", after it is finalized."""

import sys

if "mpi4py" in sys.modules and "mpi4py.MPI" in sys.modules:
    print("MPI is imported")
if sys.argv[1:] == ["import"]:
    from mpi4py import MPI

    MPI.Finalize()
raise RuntimeError("not in a job")
