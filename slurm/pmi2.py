"""Start ``python ARGUMENTS`` under ``srun --mpi=pmi2`` so that Slurm can read the messages of MPICH.

Slurm announces that PMI-1 values may have 1024 bytes, but it reads at most 1024 bytes of a message.  A message also
contains a command and a key.  Slurm interprets the unread bytes as the next message.

MPICH publishes the UCX address of each node with a fixed size of 4096 bytes.  An address has only a few hundred bytes,
so most of the value is the memory after the address.  It is sent in hexadecimal, with runs of zeros compressed.  If
this memory has few zeros, values reach the announced length.  Then MPI_Init fails ("request not begin with 'cmd='") or
hangs.

This script inserts a process that relays the messages and announces shorter values.  The process ends when either side
closes its socket.  The defects were observed with MPICH 5.0 and Slurm 22.05; the sources of both still have them in
2026.
"""

import contextlib
import os
import select
import signal
import socket
import sys

ANNOUNCED, SHORTER = b" vallen_max=1024\n", b" vallen_max=768\n"  # even, because MPICH rounds odd lengths in two ways


def relay(program, server):
    """Pass messages on in both directions until one side closes its socket."""
    others = {program: server, server: program}
    with contextlib.suppress(ConnectionError):
        while True:
            for source in select.select(list(others), [], [])[0]:
                message = source.recv(1 << 16)
                if not message:
                    return
                others[source].sendall(message.replace(ANNOUNCED, SHORTER))


def insert_relay(descriptor):
    """Start a relay process that takes over the socket `descriptor`, and connect `descriptor` to the relay."""
    server = socket.socket(fileno=os.dup(descriptor))
    program, ours = socket.socketpair()
    os.dup2(ours.fileno(), descriptor)
    ours.close()
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    if os.fork():
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        return
    # the relay blocks signals, which the program handles, and does not keep other files of the job open
    os.close(descriptor)
    for standard in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), standard)
    relay(program, server)
    os._exit(0)


if "PMI_FD" in os.environ:
    insert_relay(int(os.environ["PMI_FD"]))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
