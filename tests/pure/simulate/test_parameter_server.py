"""Simulated training with a parameter server and with ring all-reduce, and the command that prints and plots."""

import pytest

from pycoll.simulate import Link, Network, __main__
from pycoll.simulate import parameter_server as server
from pycoll.simulate.parameter_server import computing, parameter_server, ring

Z, BETA = 10**6, 1e-9
NETWORK = Network(Link(0.0, BETA), gamma=0.0)


def idle(worker):
    return 0.0


@pytest.mark.parametrize("workers", [2, 8, 32])
def test_the_servers_link_carries_all_and_the_rings_twice_a_share(workers):
    # The first push of the next step follows the first answer, so pushes overlap the other p - 1 answers.
    server = workers / parameter_server(workers, Z, idle, NETWORK, steps=50).gradients
    assert (workers + 1) * Z * BETA == pytest.approx(server, rel=0.03)
    around = workers / ring(workers, Z, idle, NETWORK).gradients
    assert around == pytest.approx(2 * (workers - 1) / workers * Z * BETA, rel=1e-6)


def test_nobody_waits_for_a_straggler_where_updates_are_asynchronous():
    def pace(bound, slow):
        return parameter_server(4, 1000, computing(0.1, slow, 0.0), NETWORK, bound, steps=200)

    for slow in (1.0, 2.0, 8.0):
        assert pace(0, slow).gradients == pytest.approx(4 / (0.1 * slow), rel=0.01)
        assert pace(None, slow).gradients == pytest.approx(3 / 0.1 + 1 / (0.1 * slow), rel=0.02)
    assert pace(0, 8.0).staleness == 0
    assert 2 < pace(3, 8.0).staleness <= 3
    # 3 updates by others during the step, and 4 in the previous one, because workers do not wait for its answer
    assert pace(None, 1.0).staleness == pytest.approx(2 * 4 - 1, rel=0.05)


def test_a_bound_helps_where_everyone_is_slow_at_times():
    paces = [
        parameter_server(8, 1000, computing(0.1, 1.0, 1.0), NETWORK, bound, steps=300).gradients
        for bound in (0, 1, 4, None)
    ]
    assert paces == sorted(paces) and paces[1] > 1.1 * paces[0]
    assert paces[0] == pytest.approx(ring(8, 1000, computing(0.1, 1.0, 1.0), NETWORK, 300).gradients, rel=0.1)


def test_a_push_waits_for_the_answer_to_the_one_before():
    pace = parameter_server(16, Z, idle, NETWORK, None, steps=100)
    assert pace.staleness < 3 * 16 and pace.server > 0.95


def test_the_command_prints_a_table_and_draws(tmp_path, capsys):
    __main__.main(["allreduce", "-n", "8", "-b", "64K", "-a", "ring,tree", "--set", "between.beta=1e-8"])
    *_, first, second, empty, note = capsys.readouterr().out.splitlines()
    assert first.split()[:4] == ["ring", "1,182.01", "14", "114,688"] and second.startswith("tree")
    assert not empty and note.endswith("are maxima over all ranks.")
    pytest.importorskip("matplotlib")
    __main__.main(["allreduce", "-n", "8", "-b", "1M", "--plot", str(tmp_path / "times.svg")])
    *_, crossing, last = capsys.readouterr().out.splitlines()
    assert last == f"written to {tmp_path / 'times.svg'}"
    assert crossing == "On 8 ranks, rabenseifner overtakes recursive_doubling between 16 KiB and 64 KiB."


def test_lines_that_coincide_and_separate_are_not_said_to_cross(tmp_path, capsys):
    """Both algorithms take as long on two ranks, and the tree is faster on more."""
    pytest.importorskip("matplotlib")
    __main__.main(["bcast", "-a", "naive,tree", "-n", "8", "-b", "64K", "--plot", str(tmp_path / "times.svg")])
    said = capsys.readouterr().out
    assert "written to" in said and "overtakes" not in said


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["allreduce", "-a", "rung"], "rung"),
        (["allrduce"], "allrduce"),
        ([], "a primitive is missing; choose one of: bcast, "),
        (["bcast", "--network", "nowhere.json"], "python -m pycoll.simulate: nowhere.json: no such file"),
        (["--network", "nowhere.json"], "python -m pycoll.simulate: nowhere.json: no such file"),
        (["bcast", "--set", "gamma"], "gamma"),
        (["bcast", "--plot", "times.txt"], "times.txt"),
        (["bcast", "--plot", "nowhere/times.svg"], "no such directory"),
        (["bcast", "--plot", "times.svg", "-n", "4", "-r", "4"], "not 4"),
        (["bcast", "--plot", "times.svg", "--delay", "1:0.1"], "--delay"),
        (["bcast", "-o", "network.json"], "--calibrate"),
        (["bcast", "--calibrate"], "--calibrate cannot be combined with a primitive"),
        (["--calibrate", "-o", "nowhere/network.json"], "no such directory"),
        (["bcast", "-n", "-1"], "ranks=-1"),
        (["bcast", "--delay", "1"], "1"),
        (["bcast", "-b", "99999999999G"], "nbytes="),
    ],
)
def test_wrong_arguments_end_the_command_with_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        __main__.main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_an_unreadable_network_ends_both_commands_in_a_line(tmp_path, capsys):
    for command, options in ((__main__.main, ["bcast"]), (server.main, [])):
        with pytest.raises(SystemExit):
            command([*options, "--network", str(tmp_path)])
        error = capsys.readouterr().err
        assert error.endswith(f": {tmp_path}: is a directory\n") and error.count("\n") == 1


@pytest.mark.parametrize("wrong", ["--jitter=-1", "--slow=inf", "--compute=nan", "-b=0", "-n=1", "--bounds=-1", "-n=a"])
def test_wrong_numbers_end_the_training_command_in_a_line(wrong, capsys):
    with pytest.raises(SystemExit) as ended:
        server.main([wrong])
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_training_command_prints_both_tables(capsys):
    server.main(["-n", "2,4", "-b", "1M", "--slow", "2"])
    printed = capsys.readouterr().out
    assert printed.count("worker 0 slower by") == 2 and "server / ring" in printed


def test_the_algorithm_may_be_the_second_argument(capsys):
    __main__.main(["bcast", "ring", "-n", "4"])
    simulated = capsys.readouterr().out
    __main__.main(["bcast", "-a", "ring", "-n", "4"])
    assert simulated == capsys.readouterr().out and "ring" in simulated and "tree" not in simulated
