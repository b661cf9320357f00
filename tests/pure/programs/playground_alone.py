"""The playground as in a browser; print the files of the package that it imports."""

import sys
from typing import Any

modules: dict[str, Any] = sys.modules
modules.update(dict.fromkeys(["numpy", "mpi4py", "tabulate", "matplotlib", "tqdm"]))
from pycoll import playground

assert "<svg" in playground.page("allreduce", ["ring"], 8)
assert playground.check("allreduce", "ring", playground.source("allreduce", "ring"))["proved"]
print(*(name.split(".")[1] for name in sys.modules if name.startswith("pycoll.")))
