"""Trace part of a program, and read the trace.

Run it with ``mpiexec -n 2 python examples/tracing.py [DIR]``.  With DIR, the trace is kept: print its summary with
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
with pycoll.trace(directory):  # collective: all ranks call it
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
    for rank in trace.ranks.values():
        computing = [phase.end - phase.begin for phase in rank.phases if phase.what == "compute"]  # ns
        assert len(computing) == CALLS
        assert min(computing) >= 2e6 or rank.number < comm.size - 1
    last = {rank: late.last for rank, late in lateness(trace).items()}  # number of calls that each rank reached last
    assert sum(last.values()) == (CALLS if comm.size > 1 else 0)
    events = json.loads((directory / "trace.json").read_text())["traceEvents"]
    assert events
    print(f"{use.calls} calls of {use.name} with {use.nbytes} bytes, median {use.median:.0f} us")
    print(f"{len(events)} events; number of calls that each rank reached last: {last}")
    if temporary:
        temporary.cleanup()
