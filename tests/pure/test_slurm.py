"""``python -m pycoll.slurm``, which writes the job scripts."""

from pathlib import Path

import pytest

from pycoll.slurm import main

SCRIPTS = Path(__file__).parents[2] / "slurm"


def test_it_writes_all_scripts(tmp_path, capsys):
    main([str(tmp_path / "jobs")])
    main([str(tmp_path / "jobs")])  # they are the same
    written = {path.name: path.read_text() for path in (tmp_path / "jobs").iterdir()}
    assert written == {path.name: path.read_text() for path in SCRIPTS.iterdir() if path.is_file()}
    assert capsys.readouterr().out == f"written to {tmp_path / 'jobs'}\n" * 2


def test_a_file_is_no_directory(tmp_path, capsys):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        main([str(tmp_path / "file")])
    assert capsys.readouterr().err.endswith("file: file exists\n")


def test_it_keeps_files_that_were_changed(tmp_path, capsys):
    (tmp_path / "common.sh").write_text("mine")
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert "has other versions of common.sh: use --force to replace them" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["common.sh"]
    main([str(tmp_path), "--force"])
    assert (tmp_path / "common.sh").read_text() == (SCRIPTS / "common.sh").read_text()
