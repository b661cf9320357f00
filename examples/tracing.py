"""Trace a part of a program, and read the trace.

Run it with ``mpiexec -n 2 python examples/tracing.py [DIR]``.  With DIR the trace is kept: print its summary with
``python -m pycoll.trace DIR``, or open ``DIR/trace.json`` in https://ui.perfetto.dev.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.trace.reading import read
from pycoll.trace.summary import lateness, uses

CALLS = 20

pycoll.abort_on_exception()
comm = MPI.COMM_WORLD
temporary = tempfile.TemporaryDirectory() if comm.rank == 0 and len(sys.argv) == 1 else None
directory = Path(comm.bcast(temporary.name if temporary else sys.argv[1] if len(sys.argv) > 1 else None))

gradient = np.ones(50_000)
with pycoll.trace(directory):  # all ranks together
    for _ in range(CALLS):
        with pycoll.trace.phase("compute"):
            time.sleep(2e-3 if comm.rank == comm.size - 1 else 0)  # the last rank is slow
        pycoll.allreduce(gradient, algorithm="ring")
comm.Barrier()

if comm.rank == 0:
    trace = read(directory)
    assert sorted(trace.ranks) == list(range(comm.size))
    use = uses(trace)[0]
    assert (use.name, use.nbytes, use.calls) == ("allreduce.ring", gradient.nbytes, CALLS)
    phases = [phase for phase in trace.ranks[0].phases if phase.what == "compute"]
    assert len(phases) == CALLS
    slowest = max(lateness(trace).items(), key=lambda item: item[1].last)[0]
    assert comm.size == 1 or slowest == comm.size - 1
    events = json.loads((directory / "trace.json").read_text())["traceEvents"]
    assert events
    print(f"{use.calls} calls of {use.name} with {use.nbytes} bytes, median {use.median:.0f} us")
    print(f"{len(events)} events; rank {slowest} was most often the last to come")
    if temporary:
        temporary.cleanup()
