"""A backend of torch.distributed: ``import pycoll.torch``, then ``init_process_group("pycoll")``.

Start the program with ``mpiexec -n 4 python train.py`` or ``srun python train.py``.  Ranks and the number of ranks come
from MPI.  Importing this module registers the backend, sets the environment variables that ``env://`` reads, and
registers the scheme ``mpi://``.  All ranks of COMM_WORLD import it.  In a process that multiprocessing started, for
example a worker of a DataLoader, it does not initialize MPI.  Nothing else of pycoll imports torch.
"""

# ruff: noqa: E402
from .children import leave_mpi_alone

leave_mpi_alone()  # before the first import of mpi4py.MPI

from ..base import mpi as _mpi  # noqa: F401  # first, because it says if there is no MPI library

# isort: split
try:
    import torch.distributed

    from . import ddp, kernels, rendezvous
    from .memory import empty, free, zeros
    from .process_group import ProcessGroup, create
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing not in ("torch", "psutil", "ml_dtypes"):
        raise
    why = f"pycoll.torch needs {missing}, which is not installed: pip install 'pycoll-mpi[torch]'"
    raise ModuleNotFoundError(why, name=error.name) from None

__all__ = ["ProcessGroup", "empty", "free", "zeros"]

torch.distributed.Backend.register_backend("pycoll", create, extended_api=True, devices=["cpu", "cuda"])
kernels.register()
rendezvous.register()
ddp.register()
