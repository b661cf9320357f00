"""Functions and commands that work without MPI."""

import runpy
import sys

import pycoll
import pycoll.trace.chrome
import pycoll.trace.reading
import pycoll.trace.report
import pycoll.trace.timeline

assert "ring" in pycoll.algorithms("bcast") and pycoll.simulate("bcast", algorithm="ring", ranks=4, nbytes=8).time
for command in ["prove bcast ring -n 2", "draw bcast ring", "simulate bcast", "costs", "watch --help", "trace --help"]:
    name, *sys.argv[1:] = command.split()
    try:
        runpy.run_module(f"pycoll.{name}", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        assert not end.code, command
