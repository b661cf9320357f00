"""An installation has all files of the package, and its benchmark runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch import run

ROOT = Path(__file__).parents[3]
NEEDED = ["pycoll", "slurm", "LICENSE", "README.md", "pyproject.toml", "setup.cfg", "setup.py"]
DATA = [".bash", ".py", ".pyi", ".typed", ".css", ".js"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Build the package and return the folder with the files that an installation puts into site-packages."""
    pytest.importorskip("setuptools")
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "setup.py", "-q", "build", "--build-base", str(target / "build")]
    environment = os.environ | {"CC": "false"}  # without the core, whose compilation takes a minute
    subprocess.run([*command, "--build-lib", str(target)], check=True, cwd=source, timeout=240, env=environment)
    return target


def files(folder):
    return {path.relative_to(folder) for path in folder.rglob("*") if path.suffix in DATA or path.name == "py.typed"}


@pytest.mark.slow
def test_all_files_are_installed(installed):
    assert files(installed / "pycoll") == files(ROOT / "pycoll") | {Path("job_scripts/pmi2.py")}
    scripts = {path.name for path in (ROOT / "slurm").iterdir() if path.is_file()}
    assert {path.name for path in (installed / "pycoll" / "job_scripts").iterdir()} == scripts


@pytest.mark.slow
@pytest.mark.parametrize(
    "module, arguments, expected",
    [
        ("pycoll.bench", ["allreduce", "-e", "64", "-f", "8", "-n", "3"], "# No wrong results"),
        ("pycoll.bench", ["--help"], "usage: python -m pycoll.bench "),
        ("pycoll.bench", ["allredcue"], "python -m pycoll.bench: argument primitive: 'allredcue' is not one of: "),
        ("pycoll.bench.calls", ["--help"], "`mpiexec -n 2 python -m pycoll.bench.calls`"),
        ("pycoll.bench.train", ["--epochs", "1"], "epoch   1: loss "),
    ],
)
def test_it_runs(installed, tmp_path, monkeypatch, module, arguments, expected):
    monkeypatch.chdir(tmp_path)
    job = run(2, ["-m", module, *arguments], 120, environment={"PYTHONPATH": str(installed)})
    assert (job.code == 0) == ("is not one of" not in expected), job.output
    assert " ".join(expected.split()) in " ".join(job.output.split()), job.output
