"""Drawings as text."""

from pycoll.draw.__main__ import main
from pycoll.draw.frames import film
from pycoll.draw.text import text
from pycoll.schedule.registry import find

from .films import each_algorithm, films

RING = """\
allreduce.ring on 2 ranks
Ring reduce-scatter, then ring all-gather: no all-reduce can send fewer bytes.

Rounds: 2  [2*(p-1)]
Messages: 2 per rank  [2*(p-1)]
Sent: Z per rank  [2*(p-1)/p*Z]
Received: Z per rank  [2*(p-1)/p*Z]
Cost: 2*alpha + Z*beta + 0.5*Z*gamma  [2*(p-1)*alpha + 2*(p-1)/p*Z*beta + (p-1)/p*Z*gamma]

start
          rank 0  rank 1
  part 0  0       1
  part 1  0       1

step 1: 0>1 [+1], 1>0 [+0]
          rank 0  rank 1
  part 0  0+1*    (1)
  part 1  (0)     1+0*

step 2: 0>1 [0], 1>0 [1]
          rank 0  rank 1
  part 0  0+1*    0+1*
  part 1  1+0*    1+0*

0>1 [+2]: part 2 is combined on arrival; 0+1: contributing ranks, in order; *: finished; (brackets): no longer needed.
"""


def test_text(capsys):
    main(["allreduce", "--algorithm", "ring", "-n", "2"])
    assert capsys.readouterr().out == RING


def test_text_of_a_barrier_says_who_has_heard_of_whom():
    lines = text(film(find("barrier", "dissemination"), 3)).splitlines()
    step = lines.index("step 1: 0>1, 1>2, 2>0")
    assert lines[step + 2 : step + 5] == ["  of 0  0       0", "  of 1          1       1", "  of 2  2               2"]


def test_text_of_many_ranks_is_a_matrix():
    lines = text(film(find("bcast", "tree"), 9)).splitlines()
    rows = [line.split() for line in lines if line.startswith("  rank ")]
    assert rows[0] == ["rank", "0", ">5*", ">3*", ">2*", ">1*"]
    assert rows[5] == ["rank", "5", "<0*", ">7*", ">6*", "*"]


@each_algorithm
def test_text_is_ascii(algorithm):
    for one in films(algorithm, 3, 9, segments=2):
        assert text(one).isascii() and "Rounds" in text(one)
