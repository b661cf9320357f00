"""Run ``tests.soak`` on ranks that differ: ``mpiexec -n 3 python differing.py core``, or with ``PYCOLL_X=value``.

Rank 1 has no compiled core, or has this environment variable.
"""

import os
import sys

what = sys.argv.pop(1)
if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == "1":
    if what == "core":
        sys.modules["pycoll.core.front"] = None  # type: ignore[assignment]
        import pycoll.core

        assert pycoll.core.problem
    else:
        name, _, value = what.partition("=")
        os.environ[name] = value

from tests import soak

if __name__ == "__main__":
    sys.exit(soak.main())
