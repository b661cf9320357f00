"""``python -m pycoll.prove``: its reports on correct schedules, and on wrong ones, each with a different defect."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pycoll.primitives import allgather, reduce_scatter
from pycoll.prove import examine, layouts
from pycoll.schedule.costs import disagreements, missing_lines
from pycoll.schedule.cuts import per_rank, whole
from pycoll.schedule.moves import AFTER, BEFORE, Recv, Reduce, Send
from pycoll.schedule.proof import ProofError, prove
from pycoll.schedule.registry import PRIMITIVES, Algorithm, algorithm, algorithms_of, find_schedule

PROGRAMS = Path(__file__).parent / "programs"
RANK_SIZE = ("rank", "size")


def made(primitive, generator, ordered=True, cut=None):
    """Return an unregistered algorithm."""
    cut = cut or (whole if PRIMITIVES[primitive].cuts else per_rank)
    return Algorithm(PRIMITIVES[primitive], "wrong", generator, cut, ordered, RANK_SIZE)


def words(primitive, generator, size, ordered=True):
    """Return the error message of the proof."""
    with pytest.raises(ProofError) as caught:
        prove(made(primitive, generator, ordered), size)
    return str(caught.value)


def send_first(rank, size):
    yield (Send((rank + 1) % size, [rank]),)
    yield (Recv((rank - 1) % size, [(rank - 1) % size]),)


def test_a_deadlock_names_its_cycle():
    assert words("allgather", send_first, 3).splitlines() == [
        "allgather.wrong on 3 ranks: "
        "deadlock: rank 0 waits for rank 1, rank 1 waits for rank 2 and rank 2 waits for rank 0",
        "  rank 0, round 1: waits to send block 0 to rank 1, which is in its round 1: it sends block 1 to rank 2",
        "  rank 1, round 1: waits to send block 1 to rank 2, which is in its round 1: it sends block 2 to rank 0",
        "  rank 2, round 1: waits to send block 2 to rank 0, which is in its round 1: it sends block 0 to rank 1",
    ]


def test_only_some_ranks_are_told_of_when_many_wait():
    lines = words("allgather", send_first, 20).splitlines()
    assert len(lines) == 10 and lines[-1] == "  ... and 12 more ranks wait"


def prove_command(*arguments):
    command = [sys.executable, "-m", "pycoll.prove", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def test_steps_of_a_rank():
    done = prove_command("allgather", "ring", "--steps", "3", "--rank", "2", "--bytes", "4")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("allgather.ring, rank 2 of 3, 4 bytes:\n  0  receive recvbuf[4:8] from rank 1")
    found = json.loads(prove_command("allgather", "ring", "--steps", "3", "--json").stdout)
    assert [step["do"] for step in found["steps"]].count("send") == 2


@pytest.mark.parametrize(
    "arguments, error",
    [
        (["allreduce", "--steps", "4"], "--steps needs one algorithm"),
        (["allreduce", "ring", "--steps", "4", "--rank", "4"], "--rank 4 is not one of 4 ranks"),
        (["allreduce", "ring", "--steps", "0"], "--rank 0 is not one of 0 ranks"),
        (["allreduce", "ring", "--steps", "2", "--bytes", "-1"], "--bytes -1 is negative"),
        (["allreduce", "native", "--steps", "2"], "native' has no schedule"),
    ],
)
def test_steps_that_cannot_be_listed(arguments, error):
    done = prove_command(*arguments)
    assert done.returncode == 2 and error in done.stderr and "Traceback" not in done.stderr


def without_yield(rank, size):
    Send((rank + 1) % size, [rank])


def test_a_schedule_that_is_not_a_generator():
    why = (
        "allgather.wrong on 3 ranks: rank 0: the schedule is not a generator, because it has no yield: it returns None"
    )
    assert words("allgather", without_yield, 3) == why
    assert examine(made("allgather", without_yield), [3]).problem == why


def through_a_partner(rank, size):
    """The messages of ranks 0, 1 and 2 match, but rank 2 also waits for a message that no one sends."""
    if rank == 0:
        yield (Recv(1, [1]),)
    elif rank == 1:
        yield Send(0, [1]), Recv(2, [2])
    elif rank == 2:
        yield Send(1, [2]), Recv(3, [3])


def test_a_message_that_no_one_sends():
    text = words("allgather", through_a_partner, 4)
    assert "a message that no one sends: rank 2 waits for rank 3, which has finished" in text
    assert "rank 2, round 1: waits to receive block 3 from rank 3, which has no rounds" in text


def waits_for_the_one_behind_its_partner(rank, size):
    """The rounds of ranks 0 and 1 match, but rank 1 waits for rank 2, rank 2 for rank 3, and rank 3 for rank 0."""
    yield from {
        0: [(Recv(1, [1]),)],
        1: [(Send(0, [1]), Recv(2, [2]))],
        2: [(Recv(3, [3]),), (Send(1, [2]),)],
        3: [(Recv(0, [0]),), (Send(2, [3]),)],
    }[rank]


def test_a_deadlock_over_partners_whose_rounds_fit():
    text = words("allgather", waits_for_the_one_behind_its_partner, 4)
    for waits in ("rank 1 waits for rank 2", "rank 2 waits for rank 3", "rank 3 waits for rank 0"):
        assert waits in text.splitlines()[0]
    assert "rank 0 waits for rank 1" in text.splitlines()[0]


def no_one_receives(rank, size):
    yield Send(1 - rank, [rank]), Recv(1 - rank, [1 - rank])
    if rank == 0:
        yield (Send(1, [0, 1]),)


def test_a_message_that_no_one_receives():
    text = words("allgather", no_one_receives, 2)
    assert "a message that no one receives: rank 0 waits for rank 1, which has finished" in text
    assert "rank 0, round 2: waits to send blocks [0, 1] to rank 1, which has finished after 1 round" in text


def ends_that_differ(rank, size):
    yield Send(1 - rank, [rank]), Recv(1 - rank, [rank])


def test_two_ends_of_a_message_that_differ():
    text = words("allgather", ends_that_differ, 2)
    assert "ranks 0 and 1 disagree about the messages between them" in text
    assert "rank 0, round 1: waits to send block 0 to rank 1, which in its round 1 receives block 1 from rank 0" in text


def two_messages_for_one(rank, size):
    if rank == 0:
        yield Send(1, [0]), Send(1, [0])
    else:
        yield (Recv(0, [0]),)


def test_numbers_of_messages_that_differ():
    text = words("allgather", two_messages_for_one, 2)
    assert "to send 2 messages (block 0 and block 0) to rank 1, which in its round 1 receives block 0 from" in text


def replaces_at_last(rank, size):
    """A naive reduce in which the root receives the last contribution instead of combining it."""
    for other in range(1, size):
        if rank == 0:
            yield (Recv(other, [0]),) if other == size - 1 else (Reduce(other, [0]),)
        elif rank == other:
            yield (Send(0, [0]),)


def test_contributions_that_are_missing():
    assert words("reduce", replaces_at_last, 4) == (
        "reduce.wrong on 4 ranks, root 0: rank 0, block 0: the result lacks the contributions of ranks 0, 1 and 2"
    )


def doubling(rank, size):
    """Recursive doubling that assumes a power of two: right for 4 ranks, wrong for 3."""
    for step in (1, 2):
        yield Send((rank + step) % size, [0]), Reduce((rank - step) % size, [0])


def test_contributions_that_are_combined_twice():
    assert words("allreduce", doubling, 3, ordered=False).endswith(
        "rank 0, block 0: the result combines the contribution of rank 0 more than once, first in round 2 of rank 0"
    )


def gives_to_those_below(rank, size):
    yield Send(1 - rank, [0]), Reduce(1 - rank, [0], BEFORE if rank else AFTER)


def test_contributions_that_do_not_belong_there():
    text = words("scan", gives_to_those_below, 2)
    assert text.endswith("rank 0, block 0: the result should not include the contribution of rank 1")


def from_above(rank, size):
    for other in range(size - 1, 0, -1):
        if rank == 0:
            yield (Reduce(other, [0], AFTER),)
        elif rank == other:
            yield (Send(0, [0]),)


def test_a_wrong_order():
    assert words("reduce", from_above, 3).endswith(
        "rank 0, block 0: the result combines the contributions in the order 0, 2 and 1, not in rank order; "
        "if it is for commutative operations only, register it with ordered=False"
    )
    prove(made("reduce", from_above, ordered=False), 3)


def each_its_own_first(rank, size):
    yield Send(1 - rank, [0]), Reduce(1 - rank, [0])


def test_different_bits():
    assert words("allreduce", each_its_own_first, 2, ordered=False).endswith(
        "block 0: rank 1 does not end with the same bits as rank 0: rank 0 combines 0+1, rank 1 combines 1+0; "
        "all ranks must combine in the same order, because floating-point addition is not associative"
    )


def sends_too_early(rank, size):
    yield Send((rank + 1) % size, [(rank - 1) % size]), Recv((rank - 1) % size, [(rank - 2) % size])


def test_a_block_that_is_sent_and_not_held():
    text = words("allgather", sends_too_early, 3)
    assert "rank 0, round 1: sends block 2, which it does not hold; it holds 0" in text


def only_the_neighbors(rank, size):
    yield Send((rank + 1) % size, [rank]), Recv((rank - 1) % size, [(rank - 1) % size])


def test_a_block_that_is_missing_at_the_end():
    assert words("allgather", only_the_neighbors, 3).endswith("on 3 ranks: rank 0 ends without block 1")


def test_a_barrier_that_is_left_too_early():
    def once_round(rank, size):
        yield Send((rank + 1) % size, []), Recv((rank - 1) % size, [])

    assert "rank 0 leaves the barrier without having heard from rank 1" in words("barrier", once_round, 3)


@pytest.mark.parametrize(
    "moves, complaint",
    [
        (Send(1, [0]), "yields a Send instead of a tuple of moves: write `yield (Send(...),)`, with a comma"),
        (None, "yields None, which is not a tuple of moves"),
        ([Send(1, [0])], "is not a tuple of moves"),
        ((1,), "is not a tuple of moves"),
        ((Send(-1, [0]),), "names rank -1, but the ranks are 0 to 1"),
        ((Recv(2, [0]),), "names rank 2, but the ranks are 0 to 1"),
        ((Recv(0.5, [0]),), "names rank 0.5, but the ranks"),
        ((Send(1, 0),), "blocks=0, which is not a sequence of blocks"),
        ((Send(1, [[0]]),), "block [0], which is not hashable"),
        ((Reduce(1, [0], "left"),), "order='left', which is neither BEFORE nor AFTER"),
    ],
)
def test_rounds_of_a_wrong_form(moves, complaint):
    def wrong(rank, size):
        yield moves

    text = words("allreduce", wrong, 2)
    assert text.startswith("allreduce.wrong on 2 ranks: rank 0, round 1: ") and complaint in text


def test_a_schedule_that_never_ends():
    def endless(rank, size):
        while True:
            yield ()

    assert "does its schedule ever end?" in words("allreduce", endless, 1)


# Formulas


def with_wrong_formulas(rank, size):
    """A ring all-reduce with wrong formulas.

    Rounds: 2*(p-1)
    Messages: at most p
    Sent: 3/4*Z
    Received: 2*(q-1)/p*Z
    Cost: 2*(p-1)*alpha + 2*Z*beta + (p-1)/p*Z*gamma
    """
    yield from reduce_scatter.ring(rank, size)
    yield from allgather.ring(rank, size)


def test_formulas_that_differ_from_the_count():
    wrong = made("allreduce", with_wrong_formulas, ordered=False, cut=per_rank)
    assert disagreements(wrong, 5) == {
        "Messages": "Messages: the formula at most p gives at most 5, but the schedule has 8 (p=5, Z=5)",
        "Sent": "Sent: the formula 3/4*Z gives 3.75, but the schedule has 8 (p=5, Z=5)",
        "Received": "Received: the formula '2*(q-1)/p*Z' cannot be evaluated (name 'q' is not defined)",
        "Cost, coefficient of beta": "Cost, coefficient of beta: "
        "the formula 2*(p-1)*alpha + 2*Z*beta + (p-1)/p*Z*gamma gives 10, but the schedule has 8 (p=5, Z=5)",
    }
    assert missing_lines(wrong) == ["Source"]
    report = examine(wrong, [1, 2, 3])
    assert report.proofs == 3 and report.missing == ["Source"] and not report.problem
    (messages,) = [problem for problem in report.formulas if problem.startswith("Messages: ")]
    (sent,) = [problem for problem in report.formulas if problem.startswith("Sent: ")]
    assert "(p=3," in messages and "(p=2," in sent, "of each line, the first case in which it is wrong"


def test_the_first_case_that_is_wrong_ends_the_proof():
    report = examine(made("reduce", replaces_at_last), [1, 2, 3])
    assert report.proofs == 1 and "on 2 ranks" in report.problem


def test_exceptions_of_a_schedule_are_shown_with_their_line():
    def wrong(rank, size):
        yield (Send(rank[0], [0]),)

    problem = examine(made("allreduce", wrong), [2]).problem
    assert problem.startswith("allreduce.wrong on 2 ranks: TypeError: 'int' object is not subscriptable (")
    assert "test_prove.py, line " in problem


def test_layouts_of_hosts():
    two_level = find_schedule("allreduce", "two_level")
    assert {None, (0, 0, 0, 0), (0, 1, 0, 1), (0, 0, 1, 1), (0, 0, 0, 1)} <= set(layouts(two_level, 4))
    assert layouts(find_schedule("allreduce", "ring"), 4) == [None]


# The registry


def test_a_decorator_without_parentheses():
    with pytest.raises(TypeError, match=r"write @algorithm\(\), with parentheses, above send_first"):
        algorithm(send_first)


def test_a_file_that_is_not_named_after_a_primitive():
    with pytest.raises(ValueError, match="send_first is in a file named test_prove, which is not one of: bcast, "):
        algorithm()(send_first)


@pytest.mark.parametrize("name, why", [("native", "has no schedule"), ("rung", "is not one of")])
def test_algorithms_without_a_schedule(name, why):
    with pytest.raises(ValueError, match=f"algorithm={name!r} .*{why}.* of bcast: naive, tree, ring") as caught:
        find_schedule("bcast", name)
    assert str(caught.value).count("native") == (name == "native")


def test_an_algorithm_that_is_no_name():
    with pytest.raises(TypeError, match="algorithm=None is not the name of an algorithm"):
        find_schedule("bcast", None)


# The command


def command(*arguments):
    job = [sys.executable, "-m", "pycoll.prove", *map(str, arguments)]
    return subprocess.run(job, capture_output=True, text=True, timeout=240)


def test_one_algorithm():
    done = command("allreduce", "ring", "-n", "1-4,6")
    assert done.returncode == 0 and not done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "allreduce.ring  5 schedules proved, formulas agree with the counts"
    assert lines[-1].split() == ["6", "1", "10", "10", "1.667", "1.667", "0.833", "10", "1.667", "0.833"]


def test_all_algorithms_of_a_primitive():
    done = command("barrier", "-n", "1-4")
    right = f"all {len(algorithms_of('barrier'))} algorithms are right\n"
    assert done.returncode == 0 and done.stdout.endswith(right), done.stdout


def test_a_file_outside_the_package():
    file = PROGRAMS / "allgather.py"
    done = command("--file", file, "-n", "2")
    assert done.returncode == 1 and not done.stderr
    assert "allgather.mine  WRONG\n    allgather.mine on 2 ranks: deadlock: rank 0 waits for" in done.stdout
    assert "allgather.idle  WRONG\n    allgather.idle on 2 ranks: rank 0 ends without block 1" in done.stdout
    assert done.stdout.endswith("2 of 2 algorithms are wrong\n")
    alone = command("allgather", "mine", "--file", file, "-n", "2")
    assert alone.returncode == 1 and "allgather.idle" not in alone.stdout


def test_a_docstring_without_formulas_is_incomplete(tmp_path):
    file = tmp_path / "barrier.py"
    text, _, _ = (PROGRAMS / "barrier.py").read_text().partition("@algorithm()\ndef idle")
    file.write_text(re.sub('    """.*?"""', "", text, flags=re.DOTALL))
    done = command("--file", file, "-n", "1-4")
    assert done.returncode == 1 and not done.stderr and "WRONG" not in done.stdout
    assert "barrier.shifts  4 schedules proved; docstring incomplete: it has no line `Rounds:`, " in done.stdout


def test_wrong_formulas_of_a_right_schedule():
    file = PROGRAMS / "barrier.py"
    done = command("barrier", "shifts", "--file", file, "-n", "2-4")
    assert done.returncode == 1 and not done.stderr
    assert done.stdout.splitlines() == [
        "barrier.shifts  3 schedules proved; formulas disagree with the counts",
        "    Rounds: the formula p gives 2, but the schedule has 1 (p=2, Z=2)",
        "    Cost, coefficient of alpha: the formula p*alpha + p*beta gives 2, but the schedule has 1 (p=2, Z=2)",
        "    Cost, coefficient of beta: the formula p*alpha + p*beta gives 2, but the schedule has 0 (p=2, Z=2)",
        "",
        "Counts of the busiest rank with root 0, and coefficients of the cost; Z is the whole vector:",
        "ranks  segments  rounds  messages  sent/Z  received/Z  combined/Z  alpha  beta/Z  gamma/Z",
        "    2         1       1         1   0.000       0.000       0.000      1   0.000    0.000",
        "    3         1       2         2   0.000       0.000       0.000      2   0.000    0.000",
        "    4         1       2         2   0.000       0.000       0.000      2   0.000    0.000",
    ]
    done = command("--file", file, "-n", "2")
    assert "\nbarrier.shifts:\nCounts of the busiest rank" in done.stdout and "\nbarrier.idle:" not in done.stdout
    summary = "1 of 2 algorithms are wrong; 1 of 2 algorithms are right, but their formulas disagree with the counts\n"
    assert done.returncode == 1 and done.stdout.endswith(f"\n{summary}")


def test_a_failing_import_in_a_file_is_one_line(tmp_path):
    file = tmp_path / "barrier.py"
    file.write_text("import sys\nfrom pycoll.schedule.moves import Sent\n")
    done = command("--file", file)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f"--file {file}, line 2: ImportError: cannot import name 'Sent'" in done.stderr


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["allredcue"], "primitive='allredcue' is not one of: bcast, "),
        (["allreduce", "rung"], "algorithm='rung' is not one of the algorithms of allreduce: naive, "),
        (["--all", "bcast"], "--all proves every algorithm: omit bcast"),
        (["-n", "0"], "'0' is not a list of numbers of ranks"),
        (["-n", "few"], "'few' is not a list of numbers of ranks"),
        (["-n", "1-2-3"], "'1-2-3' is not a list of numbers of ranks"),
        (["-n", "1-99999999999"], "'1-99999999999' has more than 65536 ranks"),
        (["--file", "nowhere/bcast.py"], ": nowhere/bcast.py: no such file\n"),
        (["--file", "nowhere/bcast"], ": nowhere/bcast: no such file\n"),
        (["--file", "pycoll"], ": pycoll: is a directory\n"),
        (["--file", "LICENSE"], "--file LICENSE is neither a Python file nor one of: .json, .xml"),
    ],
)
def test_wrong_command_lines(arguments, complaint):
    done = command(*arguments)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("python -m pycoll.prove: ") and complaint in done.stderr
    assert done.stderr.count("\n") == 1
