"""The Python half of the playground: pages, edited algorithms, errors that say where; without NumPy and MPI."""

import re
from pathlib import Path

import pytest

from pycoll import playground, simulate
from pycoll.challenges.chinese import TASKS
from pycoll.challenges.tasks import CHALLENGES
from pycoll.schedule.registry import PRIMITIVES, algorithms_of
from tests.launch import alone

PROGRAM = Path(__file__).parent / "programs" / "playground_alone.py"


def test_it_needs_only_what_the_site_ships():
    """Neither NumPy nor MPI is there."""
    text = (Path(__file__).parents[2] / "docs/_ext/playground.py").read_text()
    shipped = set(re.findall(r'"pycoll/(\w+)(?:\.py)?"', text))
    done = alone([PROGRAM])
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) <= shipped and "simulate" in shipped


def test_the_catalogue_is_whole():
    assert playground.catalogue() == {name: [*algorithms_of(name)] for name in PRIMITIVES}
    assert playground.facts("bcast", "two_level") == {"root": True, "segments": True, "per_host": True}
    assert playground.facts("allgather", "ring") == {"root": False, "segments": False, "per_host": False}


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_every_algorithm_can_be_played_and_edited(primitive):
    for name in algorithms_of(primitive):
        text = playground.source(primitive, name)
        assert str(playground.edited(primitive, name, text)) == f"{primitive}.{name}"
        page = playground.page(primitive, [name], 4, root=1, text=text)
        assert page.count('class="film alone"') == 1 and f"{primitive}.{name.partition(':')[0]}" in page


def test_two_algorithms_are_played_side_by_side():
    page = playground.page("allreduce", ["ring", "recursive_doubling"], 6)
    assert page.count('class="film"') == 2


@pytest.mark.parametrize(
    "old, new, says, line",
    [
        ("(rank + 1) % size, (rank - 1) % size", "(rank + 2) % size, (rank - 1) % size", "rank", 15),
        ("range(1, size)", "range(2, size)", "", None),
        ("for step in", "fro step in", "SyntaxError", 14),
        ("% size", "% 0", "line 13: ZeroDivisionError", 13),
        ("@algorithm(ordered=False, symmetry=around)", "", "defines 0 algorithms", None),
        ("rank - step - 1", "rank - stepp - 1", "NameError", 15),
    ],
)
def test_wrong_algorithms_show_where(old, new, says, line):
    text = playground.source("reduce_scatter", "ring")
    assert old in text
    result = playground.check("reduce_scatter", "ring", text.replace(old, new))
    assert not result["proved"] and says in result["text"], result["text"]
    assert result["line"] == line


def test_a_deadlock_is_drawn():
    text = (
        playground.source("allgather", "ring")
        .replace("), Recv(", "),\n        yield Recv(")
        .replace("1) % size])", "1) % size]),")
    )
    result = playground.check("allgather", "ring", text)
    assert not result["proved"] and "deadlock" in result["text"]
    assert result["waiting"].count('class="arrow cycle"') == 2 == result["waiting"].count('class="rank cycle"')


def test_a_right_change_is_proved():
    text = playground.source("allgather", "ring").replace("+ 1) % size, (rank - 1)", "- 1) % size, (rank + 1)")
    text = text.replace("rank - step) %", "rank + step) %").replace("rank - step - 1", "rank + step + 1")
    proved = {"proved": True, "text": "Proved for 1 to 32 ranks.", "line": None, "waiting": "", "correct": True}
    assert playground.check("allgather", "ring", text) == proved


def test_challenges_are_judged_and_played():
    first, *_ = playground.challenges()
    assert first["name"] == "chain" and first["primitive"] == "bcast" and "goal" in first
    assert not playground.judged("chain", first["text"])["proved"]
    right = next(each for each in playground.challenges() if each["name"] == "logarithm")
    page = playground.page("bcast", ["naive"], 4, text=right["text"], challenge="logarithm")
    assert "bcast.logarithm on 4 ranks" in page


def test_tasks_of_challenges_are_in_both_languages():
    english, chinese = playground.challenges(), playground.challenges("zh-CN")
    assert TASKS.keys() == CHALLENGES.keys()
    for one, other in zip(english, chinese, strict=True):
        assert one["task"].isascii() and not other["task"].isascii()
        assert other | {"task": one["task"]} == one


@pytest.mark.parametrize("topology", ["", "torus:4x2", "fat-tree:4x2:2", "rails:4x2"])
@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_the_clock_ends_with_the_time_of_the_simulation(primitive, topology):
    for name in algorithms_of(primitive):
        for hosts in {"": (1, 2), "rails:4x2": (2,)}.get(topology, (1,)):
            page = playground.page(primitive, [name], 8, 3, 2, hosts, 1 << 16, topology)
            shown = [float(time) for time in re.findall(r"simulated: (\S+) µs", page)]
            assert shown == sorted(shown) and shown[0] == 0
            given = {"ranks": 8, "nbytes": 1 << 16, "root": 3 if PRIMITIVES[primitive].rooted else 0, "segments": 2}
            time = simulate(primitive, algorithm=name, ranks_per_host=hosts, topology=topology or None, **given).time
            assert shown[-1] == pytest.approx(1e6 * time, rel=1e-3), (name, hosts)


@pytest.mark.parametrize("ranks, hosts", [(1, 1), (7, 1), (8, 2), (30, 4), (32, 1)])
def test_suggested_topologies_have_a_place_for_each_rank(ranks, hosts):
    for topology in playground.topologies(ranks, hosts):
        assert "<svg" in playground.page("allreduce", ["ring"], ranks, 0, 1, hosts, topology=topology)


def test_a_topology_without_room_is_an_error():
    with pytest.raises(ValueError, match="'torus:2x2' has hosts 0 to 3, but a rank is on 7"):
        playground.page("allreduce", ["ring"], 8, topology="torus:2x2")
