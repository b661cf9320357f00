"""Runs the tests of mpi4py on pycoll's communicators: ``mpiexec -n 3 python -m tests.mpi4py_suite SOURCE [OPTIONS]``.

SOURCE is the unpacked source of the installed version of mpi4py, as ``pip download --no-binary mpi4py --no-deps
mpi4py==VERSION`` gets it.  OPTIONS are those of its ``test/main.py``; the default is to run the tests of collectives,
communicators, messages and datatypes, with arrays that only claim to lie on a GPU among the buffers.
"""

import sys
from pathlib import Path

from pycoll import run

DEFAULT = ["-q", "-i", "test_(cco|comm|p2p|msg|datatype|util_dtlib|pack|objmodel|subclass)"]


def main() -> None:
    """Run the tests that the command line names."""
    if len(sys.argv) < 2 or not Path(sys.argv[1], "test", "main.py").is_file():
        sys.exit(__doc__)
    source, *options = sys.argv[1:]
    # Without this module there are no fake DLPack arrays, whose memory is freed twice by numpy.from_dlpack.
    sys.modules["dlpackimpl"] = None  # type: ignore[assignment]
    run.main([str(Path(source, "test", "main.py")), *(options or DEFAULT)])


if __name__ == "__main__":
    main()
