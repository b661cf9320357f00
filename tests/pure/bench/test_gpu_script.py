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
    (commands / "python3").symlink_to(sys.executable)
    cupy = tmp_path / "outer"
    cupy.mkdir()
    (cupy / "cupy.py").write_text("outer = True")
    environment = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}", "PYTHONPATH": str(cupy)}

    def run(*arguments, gpu=False):
        smi = commands / "nvidia-smi"
        smi.write_text(f"#!/bin/sh\necho a GPU\nexit {int(not gpu)}\n")
        smi.chmod(0o755)
        command = ["bash", str(SCRIPT), "-o", str(tmp_path / "out"), *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)

    return run


def test_steps_that_have_results_are_skipped(script, tmp_path):
    out, steps = tmp_path / "out", script("-n").stdout.splitlines()
    assert len(steps) == 14 and all(line.endswith(": to do") for line in steps)
    (out / "info.txt").touch()
    assert [line for line in script("-n").stdout.splitlines() if "to do" not in line] == [
        f"== info: done, see {out}/info.txt"
    ]
    assert script("-n", "info", "summary").stdout.splitlines()[1:] == ["== summary: to do"]


def test_a_step_that_failed_is_repeated(script, tmp_path):
    out = tmp_path / "out"
    done = script("host")
    assert done.returncode == 1 and "host failed" in done.stderr
    assert (out / "host.failed.txt").read_text().startswith("a GPU") and not (out / "host.txt").exists()
    script("host", gpu=True)  # ends with the libraries of CUDA, which may be missing
    assert (out / "host.txt").exists() != (out / "host.failed.txt").exists()
    if (out / "host.txt").exists():
        assert "host: done" in script("host").stdout


def test_an_unknown_step(script):
    done = script("bnech")
    assert done.returncode == 2 and "unknown step bnech; the steps are: host info" in done.stderr


def test_wheels_that_were_brought_along(script, tmp_path):
    """A bare environment with these wheels, and with the CuPy of python3, although that is in another environment."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "brought-1.0-py3-none-any.whl", "w") as wheel:
        info = "brought-1.0.dist-info"
        wheel.writestr("brought.py", "along = True\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    done = script("-w", wheels, "-n")
    assert done.returncode == 0, done.stderr
    program = "import brought, cupy, importlib.util as u; assert cupy.outer; assert u.find_spec('mpi4py') is None"
    python = tmp_path / "out" / "venv" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([python, "-c", program], check=True, timeout=240, env=environment)
