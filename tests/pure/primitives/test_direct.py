"""Direct schedules, from which the programs for registered buffers are made."""

import pytest

from pycoll.draw.frames import film
from pycoll.draw.page import page
from pycoll.draw.text import text
from pycoll.primitives.direct import SUFFIX, direct, find_schedule, is_contribution
from pycoll.prove import examine, layouts, main, roots, segments
from pycoll.schedule.moves import Recv, Send
from pycoll.schedule.proof import outcomes
from pycoll.schedule.registry import PRIMITIVES, algorithms_of
from pycoll.schedule.symbols import Leaf
from pycoll.simulate import simulate

WITH = [a for name in PRIMITIVES if name != "barrier" for a in algorithms_of(name).values()]
REDUCING = [algorithm for algorithm in WITH if algorithm.primitive.reduces]


@pytest.mark.parametrize("algorithm", WITH, ids=str)
def test_proof_and_formulas(algorithm):
    sizes = [1, 2, 3, 4, 5] if algorithm.pipelined or algorithm.knows_hosts else [1, 2, 3, 4, 5, 7, 8, 16]
    report = examine(direct(algorithm), sizes)
    assert not (report.problem or report.formulas)
    assert not report.missing


def order(expression):
    """Return the order of combination, without the names of blocks."""
    return expression.rank if isinstance(expression, Leaf) else tuple(map(order, expression))


@pytest.mark.parametrize("algorithm", REDUCING, ids=str)
def test_the_same_order_of_combination(algorithm):
    """Check that each part of the vector is combined as the algorithm combines the block around it."""
    for size in (2, 3, 4, 6):
        for root in roots(algorithm, size):
            for number in segments(algorithm, size):
                for hosts in layouts(algorithm, size):
                    given = size, root, number, hosts
                    shape = size, number, hosts
                    parts = direct(algorithm).parts(*shape) // algorithm.parts(*shape)
                    for here, there in zip(outcomes(algorithm, *given), outcomes(direct(algorithm), *given)):
                        assert here.keys() == {part // parts for part in there}
                        assert all(order(here[part // parts]) == order(one) for part, one in there.items())


@pytest.mark.parametrize("algorithm", WITH, ids=str)
def test_ranks_send_only_what_they_had_at_the_start_or_what_others_want(algorithm):
    """Check that no rank forwards a block: all contributions are sent first, and only results after them."""
    for size in (2, 3, 5):
        one = direct(algorithm)
        for rank in range(size):
            rounds = [moves for moves in one.schedule(rank, size) if isinstance(moves[0], Send | Recv)]
            assert len(rounds) <= 2
            for number, moves in enumerate(rounds):
                blocks = [block for move in moves if isinstance(move, Send) for block in move.blocks]
                if algorithm.primitive.reduces:
                    assert all(is_contribution(block) == (number == 0) for block in blocks)
                else:
                    assert set(blocks) <= set(one.primitive.holds(rank, size, 0, one.parts(size)))


def test_names():
    assert str(find_schedule("allreduce", f"ring{SUFFIX}")) == "allreduce.ring@registered"
    assert find_schedule("allreduce", "ring") is algorithms_of("allreduce")["ring"]
    with pytest.raises(ValueError, match="barrier has no schedule for registered buffers"):
        find_schedule("barrier", f"tree{SUFFIX}")
    with pytest.raises(ValueError, match="algorithm='rign' is not one of the algorithms of allreduce"):
        find_schedule("allreduce", f"rign{SUFFIX}")


@pytest.mark.parametrize("primitive, name", [("allreduce", "ring"), ("scan", "tree"), ("bcast", "ring")])
def test_tools(capsys, primitive, name):
    one = f"{name}{SUFFIX}"
    assert main([primitive, one, "-n", "2-4"]) == 0
    assert f"{primitive}.{one}  " in capsys.readouterr().out
    drawn = film(find_schedule(primitive, one), 3, segments=2)
    assert text(drawn).startswith(f"{primitive}.{one} on 3 ranks")
    assert page(drawn).startswith("<!doctype html>")
    assert simulate(primitive, algorithm=one, ranks=4, nbytes=1 << 20, ranks_per_host=4).time > 0
