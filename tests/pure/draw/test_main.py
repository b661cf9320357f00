"""The command line for drawings: files and one-line errors, without MPI."""

import subprocess
import sys

import pytest

from pycoll.draw.__main__ import main

from .films import classes


def test_files(tmp_path, capsys):
    for name in ("ring.svg", "ring.html"):
        main(["bcast", "--algorithm", "ring", "-n", "3", "--root", "2", "--segments", "4", "-o", str(tmp_path / name)])
        content = (tmp_path / name).read_text(encoding="utf-8")
        assert "bcast.ring on 3 ranks, root 2, 4 segments" in content
        assert capsys.readouterr().out == f"written to {tmp_path / name}\n"
    main(["bcast", "--algorithm", "knomial:3", "-o", str(tmp_path / "knomial.svg")])
    main(["allreduce", "--algorithm", "two_level", "--hosts", "0,1,0,1", "-o", str(tmp_path / "hosts.svg")])
    assert classes((tmp_path / "hosts.svg").read_text(encoding="utf-8"), "host") == 4 * 5
    domains = "0.0,0.0,0.1,0.1,1.0,1.0,1.1,1.1"
    path = tmp_path / "domains.svg"
    main(["allreduce", "--algorithm", "hierarchical", "-n", "8", "--hosts", domains, "-o", str(path)])
    text = path.read_text(encoding="utf-8")
    assert all(f">host {name}<" in text for name in ("0.0", "0.1", "1.0", "1.1")) and "2 hosts" in text


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        ("", "a primitive is missing; choose one of: bcast, "),
        ("allredcue --algorithm ring", "primitive 'allredcue' is unknown; choose one of: bcast, "),
        ("allreduce", "--algorithm is missing; choose one of: naive, tree, ring, "),
        ("allreduce --algorithm rong", "algorithm='rong' is not one of the algorithms of allreduce: naive, "),
        ("allreduce --algorithm native", "algorithm='native' has no schedule"),
        ("bcast --algorithm hierarchical:levels=cpu", "algorithm='hierarchical:levels=cpu' is not a name of the form "),
        ("bcast --algorithm knomial:1", "algorithm='knomial:1' is not a name of the form knomial:K: '1' is not an "),
        ("allreduce --algorithm ring -n 0", "-n must be between 1 and 64, not 0"),
        ("allreduce --algorithm ring -n 65", "-n must be between 1 and 64, not 65"),
        ("allreduce --algorithm ring -n four", "argument -n/--ranks: invalid int value: 'four'"),
        ("bcast --algorithm ring --root 4", "--root must be between 0 and 3, not 4"),
        ("bcast --algorithm ring --root -1", "--root must be between 0 and 3, not -1"),
        ("allreduce --algorithm ring --root 0", "--root 0: allreduce has no root"),
        ("allreduce --algorithm ring --segments 2", "--segments 2: allreduce.ring is not pipelined"),
        ("bcast --algorithm ring --segments 0", "--segments must be between 1 and 64, not 0"),
        ("allreduce --algorithm two_level --hosts 0,1", "--hosts 0,1 names 2 hosts for 4 ranks"),
        ("allreduce --algorithm ring --hosts 0.0,0.1,1,1", "--hosts 0.0,0.1,1,1 has domains for some ranks only"),
        ("allreduce --algorithm two_level --hosts a,b", "--hosts 'a,b' is not a comma-separated list of numbers"),
        ("allreduce --algorithm ring -o ring.png", "-o ring.png does not end in .svg or .html"),
        ("allreduce --algorithm ring -o no/such/ring.svg", "-o no/such/ring.svg: no such directory"),
        ("--all", "--all needs -o with a directory"),
        ("--all allreduce -o guide", "--all cannot be combined with a primitive or an algorithm"),
        ("--all --root 4 -o guide", "--root must be between 0 and 3, not 4"),
    ],
)
def test_errors_are_one_line(arguments, complaint, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(arguments.split())
    said = capsys.readouterr().err
    assert stopped.value.code == 2
    assert said.startswith(f"python -m pycoll.draw: {complaint}") and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_draws_where_there_is_no_mpi(tmp_path):
    program = (
        "import runpy, sys; sys.modules['mpi4py'] = sys.modules['numpy'] = None; "
        "sys.argv = ['draw', 'scan', '-a', 'tree', '-o', sys.argv[1]]; "
        "runpy.run_module('pycoll.draw', run_name='__main__')"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "scan.html")], check=True, timeout=240)
    assert "scan.tree on 4 ranks" in (tmp_path / "scan.html").read_text(encoding="utf-8")


def test_the_algorithm_may_be_the_second_argument(capsys):
    main(["bcast", "ring"])
    drawn = capsys.readouterr().out
    main(["bcast", "-a", "ring"])
    assert drawn == capsys.readouterr().out and drawn
    with pytest.raises(SystemExit):
        main(["bcast", "ring", "-a", "tree"])
    assert "an algorithm cannot be combined with --algorithm" in capsys.readouterr().err
