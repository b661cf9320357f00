import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from pycoll import watch
from pycoll.runtime.recording.roll_call import CALL, ENTERED, MOST, SINCE, WAITS, RollCall, birth

SECOND = 10**9


@pytest.fixture
def rolls(tmp_path):
    """The roll calls of three ranks in this process, each on one communicator after call 7, an allreduce."""
    made = [RollCall(tmp_path, rank, 3) for rank in range(3)]
    for rank, roll in enumerate(made):
        at = roll.add("0a.0", rank, (0, 1, 2))
        roll.view[at], roll.view[at + CALL], roll.view[at + ENTERED] = 14, roll.named("allreduce"), 100 * SECOND
        roll.at = at
    return made


def enter(roll, name):
    at = roll.at
    roll.view[at] += 1 + roll.view[at] % 2  # leave the call before
    roll.view[at + CALL], roll.view[at + ENTERED] = roll.named(name), 102 * SECOND


def test_all_ranks_between_two_calls(tmp_path, rolls):
    ranks = watch.read(tmp_path)
    assert [(rank.rank, rank.ranks, rank.pid, rank.state) for rank in ranks] == [
        (rank, 3, os.getpid(), "running") for rank in range(3)
    ]
    assert all(rank.states == {"0a.0": watch.CallState(7, "allreduce", False, 100 * SECOND, "", 0)} for rank in ranks)
    text = watch.report(ranks, 111 * SECOND)
    assert "3 ranks: running: ranks 0, 1 and 2" in text and "never came" not in text
    assert len(re.findall(r"after it +11\.0 ", text)) == 3


def test_the_rank_that_never_came_is_named(tmp_path, rolls):
    enter(rolls[0], "bcast")
    enter(rolls[2], "bcast")
    text = watch.report(watch.read(tmp_path), 105 * SECOND)
    assert "Rank 1 never came to call 8 (bcast)." in text
    assert len(re.findall(r"in it +3\.0 ", text)) == 2


def test_ranks_that_are_one_call_behind_because_another_one_is_are_not_blamed(tmp_path, rolls):
    enter(rolls[0], "bcast")
    enter(rolls[0], "allreduce")
    enter(rolls[2], "bcast")
    text = watch.report(watch.read(tmp_path), 105 * SECOND)
    assert "Rank 1 never came to call 8 (bcast)." in text
    assert text.count("never came") == 1


def test_different_collectives_are_named(tmp_path, rolls):
    for rank, roll in enumerate(rolls):
        enter(roll, "scan" if rank == 1 else "bcast")
    text = watch.report(watch.read(tmp_path), 105 * SECOND)
    assert "Call 8 is not the same collective on all ranks: bcast on ranks 0 and 2, scan on rank 1." in text


def test_a_wait_for_a_collective_in_flight(tmp_path, rolls):
    view, at = rolls[1].view, rolls[1].at
    view[at + WAITS], view[at + SINCE] = rolls[1].named("allreduce by ring"), 104 * SECOND
    assert "waits for allreduce by ring" in watch.report(watch.read(tmp_path), 105 * SECOND)


def test_a_later_job_has_fewer_ranks(tmp_path, rolls):
    for rank in (0, 1):
        names = tmp_path / f"rank-{rank}.names"
        names.write_text(names.read_text().replace('"ranks":3', '"ranks":2', 1))
    assert [one.rank for one in watch.read(tmp_path)] == [0, 1]


def test_a_first_call(tmp_path, rolls):
    roll = rolls[2]
    roll.view[roll.first + CALL], roll.view[roll.first] = roll.named("Barrier"), 1
    assert "On a communicator in its first call:" in watch.report(watch.read(tmp_path), 105 * SECOND)


def test_ranks_that_ended_were_killed_or_wrote_nothing(tmp_path, rolls):
    rolls[0].end()
    names = tmp_path / "rank-1.names"
    names.write_text(names.read_text().replace(f'"pid":{os.getpid()}', '"pid":1'))
    (tmp_path / "rank-2.names").write_text("")  # as it is created
    text = watch.report(watch.read(tmp_path), 105 * SECOND)
    assert "ended: rank 0, killed: rank 1" in text
    assert "No files of rank 2" in text


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_stopped_and_dead_processes(tmp_path, rolls):
    with subprocess.Popen(["sleep", "5"]) as child:
        names = tmp_path / "rank-1.names"
        text = names.read_text().replace(f'"pid":{os.getpid()}', f'"pid":{child.pid}')
        names.write_text(text.replace(birth(os.getpid()), birth(child.pid)))
        assert watch.read(tmp_path)[1].state == "running"
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        ranks = watch.read(tmp_path)
        assert "running: ranks 0 and 2, stopped: rank 1" in watch.report(ranks, 105 * SECOND)
        assert "Rank 1:\nno answer: the process is stopped" in watch.stacks(tmp_path, ranks[1:2])
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # its parent has not yet asked for its status
        assert watch.read(tmp_path)[1].state == "killed"


def test_more_communicators_than_there_is_space_for(tmp_path):
    roll = RollCall(tmp_path, 0, 1)
    places = [roll.add(f"{number}", 0, (0,)) for number in range(MOST + 2)]
    assert len(set(places)) == MOST + 1
    assert places[-1] == places[-2] == roll.first
    assert len(watch.read(tmp_path)[0].states) == MOST


def test_stacks(tmp_path, rolls, capsys):
    assert "test_stacks" in watch.stacks(tmp_path, watch.read(tmp_path)[2:])


def test_a_child_process_leaves_the_files_alone(tmp_path, rolls):
    child = os.fork()
    if not child:
        rolls[0].view[rolls[0].at] = 98
        os._exit(0)
    os.waitpid(child, 0)
    assert watch.read(tmp_path)[0].states["0a.0"].calls == 7


def test_errors_in_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit):
        watch.main([str(tmp_path)])
    assert "has no files of ranks" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        watch.main([str(tmp_path), "--end-after", "0"])
    assert "--end-after 0 is not a positive number" in capsys.readouterr().err


def test_supervision_ends_with_the_job(tmp_path, rolls):
    for roll in rolls:
        roll.end()
    start = time.monotonic()
    assert watch.main([str(tmp_path), "--end-after", "60"]) == 0
    assert time.monotonic() - start < 30
