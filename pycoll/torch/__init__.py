"""A backend of torch.distributed: ``import pycoll.torch``, then ``init_process_group("pycoll")``.

Start the program with ``mpiexec -n 4 python train.py`` or ``srun python train.py``.  Ranks and the number of ranks come
from MPI.  Importing this module registers the backend and the scheme ``mpi://``, and sets the environment variables of
torchrun that the launcher knows.  MPI is initialized with the first process group; in a process that multiprocessing
started, for example a worker of a DataLoader, it is not.  Nothing else of pycoll imports torch.
"""

from typing import TYPE_CHECKING, Any

from .children import leave_mpi_alone

leave_mpi_alone()  # before the first import of mpi4py.MPI

try:
    import ml_dtypes  # noqa: F401  # of process groups
    import torch.distributed

    from . import rendezvous
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing not in ("torch", "psutil", "ml_dtypes"):
        raise
    why = f"pycoll.torch needs {missing}, which is not installed: pip install 'pycoll-mpi[torch]'"
    raise ModuleNotFoundError(why, name=error.name) from None

if TYPE_CHECKING:
    from .memory import empty, free, zeros
    from .process_group import ProcessGroup

__all__ = ["ProcessGroup", "empty", "free", "zeros"]


def create(options: Any, backend_options: Any) -> "ProcessGroup":
    """Create a process group, and initialize MPI if this is the first one."""
    from . import ddp, kernels, process_group

    kernels.register()
    ddp.register()
    return process_group.create(options, backend_options)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import memory, process_group

    return getattr(process_group if name == "ProcessGroup" else memory, name)


if "pycoll" not in torch.distributed.Backend.backend_list:  # torch has not called `pycoll.torch_backend`
    torch.distributed.Backend.register_backend("pycoll", create, extended_api=True, devices=["cpu", "cuda"])
rendezvous.register()
