"""Command lines on several ranks: only rank 0 prints, and no rank exits before it has printed."""

import io
import sys
import time

import pytest

from pycoll.base.command_line import PAUSE, printed_once
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi


class Noting(io.StringIO):
    """A stream that records the time of the last write, on the clock shared by all processes of a host."""

    written = 0.0

    def write(self, text):
        self.written = time.monotonic()
        return super().write(text)


@pytest.mark.parametrize("slow", [0, SIZE - 1])
def test_no_rank_ends_before_the_first_has_said_why(monkeypatch, slow):
    stderr = Noting()
    monkeypatch.setattr(sys, "stderr", stderr)
    with pytest.raises(SystemExit, match="2"), printed_once(WORLD):
        time.sleep(0.05 * (RANK == slow))
        sys.stderr.write("wrong")
        sys.exit(2)
    ended = time.monotonic()
    pause = 0 if RANK == 0 else PAUSE  # the launcher has time to read it
    assert ended >= WORLD.bcast(stderr.written) + pause
    assert stderr.getvalue() == ("wrong" if RANK == 0 else "")


def test_one_rank_ends_all_and_is_heard(capsys):
    with pytest.raises(SystemExit, match="1"), printed_once(WORLD):
        print("all is well")
        if RANK == SIZE - 1:
            sys.stderr.write("no such folder here")
            sys.exit(1)
    said = capsys.readouterr()
    assert said == (("all is well\n", "no such folder here") if RANK == 0 else ("", ""))


def test_who_does_not_end_is_heard_too(capsys):
    with printed_once(WORLD):
        print(f"a warning of {RANK}")
    assert capsys.readouterr().out == ("a warning of 0\n" if RANK == 0 else "")
