"""bench/gpu.sh: its steps, and the virtual environment for a machine without network."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "bench" / "gpu.sh"

pytestmark = pytest.mark.skipif(not SCRIPT.exists() or shutil.which("bash") is None, reason="needs a checkout and bash")


@pytest.fixture
def script(tmp_path):
    """Run the script with results in `tmp_path / "out"`, and a command `nvidia-smi` that works or not."""
    commands = tmp_path / "bin"
    commands.mkdir()
    python = commands / "python3"  # not a link: by it, Python would not find its virtual environment
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    cupy = tmp_path / "outer"
    cupy.mkdir()
    (cupy / "cupy.py").write_text("outer = True")
    environment = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}", "PYTHONPATH": str(cupy)}

    def run(*arguments, gpu=False, **settings):
        smi = commands / "nvidia-smi"
        smi.write_text(f"#!/bin/sh\necho a GPU\nexit {int(not gpu)}\n")
        smi.chmod(0o755)
        command = ["bash", str(SCRIPT), "-o", str(tmp_path / "out"), *map(str, arguments)]
        return subprocess.run(command, env=environment | settings, capture_output=True, text=True, timeout=240)

    return run


def test_steps_that_have_results_are_skipped(script, tmp_path):
    out, steps = tmp_path / "out", script("-n").stdout.splitlines()
    assert len(steps) == 15 and all(line.endswith(": to do") for line in steps)
    assert not out.exists()
    out.mkdir()
    (out / "info.txt").touch()
    assert [line for line in script("-n").stdout.splitlines() if "to do" not in line] == [
        f"== info: done, see {out}/info.txt"
    ]
    (out / "summary.txt").touch()  # of earlier results
    assert script("-n", "summary", "info").stdout.splitlines()[1:] == ["== summary: to do"]
    (out / "host.failed.txt").touch()
    assert [line.split()[1] for line in script("-n").stdout.splitlines()[-2:]] == ["host:", "summary:"]


def test_a_step_that_failed_is_repeated(script, tmp_path):
    out = tmp_path / "out"
    done = script("host")
    assert done.returncode == 1 and "host failed" in done.stderr
    assert (out / "host.failed.txt").read_text().startswith("a GPU") and not (out / "host.txt").exists()
    script("host", gpu=True)  # ends with the libraries of CUDA, which may be missing
    assert (out / "host.txt").exists() != (out / "host.failed.txt").exists()
    if (out / "host.txt").exists():
        assert "host: done" in script("host").stdout


def test_no_step_begins_in_the_last_minute(script, tmp_path):
    done = script("host", TOTAL="50")
    assert done.returncode == 1 and "run the script again for host" in done.stderr
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("name", ["bnech", "bench", "direct", ""])
def test_an_unknown_step(script, tmp_path, name):
    done = script("host", name)
    assert done.returncode == 2 and f"unknown step {name}; the steps are: host info" in done.stderr
    assert not (tmp_path / "out").exists()


def test_wheels_are_not_downloaded_twice(tmp_path):
    (tmp_path / "old-1.0-py3-none-any.whl").touch()
    command = ["bash", str(SCRIPT), "wheels", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1 and "already contains wheels" in done.stderr


def test_wheels_that_were_brought_along(script, tmp_path):
    """A bare environment with these wheels, and with the CuPy of python3, although that is in another environment.

    The folders of that environment are among those that packages search for the libraries of CUDA.
    """
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "brought-1.0-py3-none-any.whl", "w") as wheel:
        info = "brought-1.0.dist-info"
        wheel.writestr("brought.py", "along = True\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    assert "host failed" in script("-w", wheels, "host").stderr
    program = f"""
import brought, cupy, importlib.util, site
assert cupy.outer and importlib.util.find_spec("mpi4py") is None
assert any(folder.startswith({sys.prefix!r}) for folder in site.getsitepackages())
"""
    python = tmp_path / "out" / "venv" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([python, "-c", program], check=True, timeout=240, env=environment)


def test_an_installation_that_was_interrupted_is_repeated(script, tmp_path):
    wheels, venv = tmp_path / "wheels", tmp_path / "venv"
    wheels.mkdir()
    (wheels / "broken-1.0-py3-none-any.whl").write_text("not a wheel")
    for _ in range(2):
        done = script("-w", wheels, "host", VENV=str(venv))
        assert done.returncode != 0 and "host" not in done.stdout, "no step begins"
    assert (venv / "bin" / "python").exists() and not (tmp_path / "out" / "venv").exists()
