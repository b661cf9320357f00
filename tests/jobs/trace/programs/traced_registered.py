"""All-reduces of registered memory; with arguments, a directory then takes the name of the trace."""

import sys
from pathlib import Path

import pycoll

send, recv = pycoll.empty(30000), pycoll.empty(30000)
for _ in range(3):
    pycoll.allreduce(send, recv, algorithm="ring")
if sys.argv[1:]:
    pycoll.abort_on_exception()
    Path(sys.argv[1]).mkdir(exist_ok=True)
    if sys.argv[2] == "failure":
        raise RuntimeError("this one")
