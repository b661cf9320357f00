"""Talk to a PMI server: send the requests that are given as arguments, or wait for a signal if there are none."""

import os
import signal
import sys

server = int(os.environ["PMI_FD"])
for request in sys.argv[1:]:
    os.write(server, request.encode() + b"\n")
    print(os.read(server, 1 << 16).decode(), end="", flush=True)
if not sys.argv[1:]:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    print("ready", flush=True)
    signal.sigwait({signal.SIGTERM})
    os.write(server, b"cmd=finalize")
    raise SystemExit(7)
