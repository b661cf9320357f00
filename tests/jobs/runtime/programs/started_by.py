"""Become a program, which rank 1 starts with the command that follows its name."""

import os
import sys

rank = os.environ.get("OMPI_COMM_WORLD_RANK")
if rank is None:
    sys.exit("only Open MPI connects processes of several PID namespaces of a host")
program, *before = sys.argv[1:]
command = [*(before if rank == "1" else []), sys.executable, program]
os.execvp(command[0], command)
