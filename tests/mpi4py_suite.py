"""Run the tests of mpi4py on pycoll communicators: ``mpiexec -n 3 python -m tests.mpi4py_suite SOURCE [OPTIONS]``.

SOURCE is the unpacked source of the installed version of mpi4py, as downloaded by ``pip download --no-binary mpi4py
--no-deps mpi4py==VERSION``.  OPTIONS are passed to its ``test/main.py``.  By default, the tests of collectives,
communicators, messages and datatypes run; some of their buffers are host arrays that claim to be in GPU memory.
"""

import sys
from pathlib import Path

from pycoll import run

DEFAULT = ["-q", "-i", "test_(cco|comm|p2p|msg|datatype|util_dtlib|pack|objmodel|subclass)"]


def main() -> None:
    """Run the tests selected on the command line."""
    if len(sys.argv) < 2 or not Path(sys.argv[1], "test", "main.py").is_file():
        sys.exit(__doc__)
    source, *options = sys.argv[1:]
    # Disable the fake DLPack arrays of this module: numpy.from_dlpack frees their memory twice.
    sys.modules["dlpackimpl"] = None  # type: ignore[assignment]
    run.main([str(Path(source, "test", "main.py")), *(options or DEFAULT)])


if __name__ == "__main__":
    main()
