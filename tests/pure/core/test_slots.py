"""A model of the protocol of slots, in Promela: spin examines all interleavings of the steps of the ranks."""

import shutil
import subprocess
from pathlib import Path

import pytest

COMPILER = next(filter(shutil.which, ("cc", "gcc", "clang")), "cc")
MISSING = [name for name in ("spin", COMPILER) if not shutil.which(name)]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}")
DEPTH = 2_000_000  # steps of the longest path


def explored(directory, *options):
    """Return what spin says about the model with these options; it says so if it has not examined all paths."""
    commands = [
        ["spin", "-a", *options, str(Path(__file__).with_name("slots.pml"))],
        [COMPILER, "-w", "-DSAFETY", "-o", "pan", "pan.c"],
        ["./pan", f"-m{DEPTH}"],
    ]
    for command in commands:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("ranks", [2, 3])
def test_no_order_of_steps_is_wrong(tmp_path, ranks):
    said = explored(tmp_path, f"-DRANKS={ranks}")
    assert "errors: 0" in said and "max search depth too small" not in said, said


def test_more_slots(tmp_path):
    said = explored(tmp_path, "-DSLOTS=3")
    assert "errors: 0" in said and "max search depth too small" not in said, said


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("fault", ["HASTY", "FEWER", "SILENT"])
def test_wrong_protocols_are_refuted(tmp_path, fault, ranks):
    said = explored(tmp_path, f"-DRANKS={ranks}", f"-D{fault}")
    assert "errors: 1" in said and "assertion violated" in said, said
