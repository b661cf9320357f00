"""slurm/pmi2.py as a relay between a program and a PMI-1 server; needs no cluster."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "slurm" / "pmi2.py"
CLIENT = Path(__file__).parent / "programs" / "pmi_client.py"
DIALOGUE = {  # request: reply of the server, reply that the program receives
    "cmd=init pmi_version=1": ("cmd=response_to_init rc=0", "cmd=response_to_init rc=0"),
    "cmd=get_maxes": ("cmd=maxes rc=0 keylen_max=64 vallen_max=1024", "cmd=maxes rc=0 keylen_max=64 vallen_max=768"),
    "cmd=put value=" + 5000 * "F": ("cmd=put_result rc=0", "cmd=put_result rc=0"),
    "cmd=get": ("cmd=get_result rc=0 value=" + 5000 * "A", "cmd=get_result rc=0 value=" + 5000 * "A"),
}


@pytest.fixture
def start():
    """Return a function that starts a program with a socket to a server, and returns the program and the server."""
    server, client = socket.socketpair()
    server.settimeout(240)
    programs = []

    def run(*arguments):
        descriptor = client.fileno()
        programs.append(
            subprocess.Popen(
                [sys.executable, str(SCRIPT), *map(str, arguments)],
                env={**os.environ, "PMI_FD": str(descriptor)},
                pass_fds=[descriptor],
                stdout=subprocess.PIPE,
                start_new_session=True,
                text=True,
            )
        )
        client.close()
        return programs[-1], server

    yield run
    server.close()
    for program in programs:
        program.kill()
        program.communicate()


def test_only_the_announced_length_is_altered(start):
    program, server = start(CLIENT, *DIALOGUE)
    for request, (reply, _) in DIALOGUE.items():
        assert server.recv(1 << 16).decode() == request + "\n"
        server.sendall(reply.encode() + b"\n")
    output, _ = program.communicate(timeout=240)
    assert output.splitlines() == [reply for _, reply in DIALOGUE.values()]
    assert program.returncode == 0
    assert server.recv(1) == b"", "the relay is still there"


def test_signals_to_all_processes_of_the_job(start):
    """Check that the program can handle a signal and continue to use PMI."""
    program, server = start(CLIENT)
    assert program.stdout.readline() == "ready\n"
    os.killpg(program.pid, signal.SIGTERM)
    assert server.recv(1 << 16) == b"cmd=finalize"
    assert program.wait(30) == 7
    assert server.recv(1) == b"", "the relay is still there"


def test_a_server_that_has_gone(start):
    program, server = start("-c", "import os; print(os.read(int(os.environ['PMI_FD']), 1))")
    server.close()
    assert program.communicate(timeout=240)[0] == "b''\n"


def test_without_pmi():
    environment = {name: value for name, value in os.environ.items() if name != "PMI_FD"}
    command = [sys.executable, str(SCRIPT), "-c", "import sys; print(sys.argv[1:])", "-m", "a b"]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert output == "['-m', 'a b']\n"
