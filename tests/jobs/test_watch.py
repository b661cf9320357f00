"""``PYCOLL_WATCH`` and ``python -m pycoll.watch``, in jobs with a rank that does not come or is stopped."""

import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.launch import run

PROGRAMS = Path(__file__).parent / "programs"


def watching(directory, behavior, *options):
    """Run the program, and `pycoll.watch` on it once all other ranks wait; return the output, and what became of it."""
    roll = directory / "roll"
    jobs = []
    job = threading.Thread(
        target=lambda: jobs.append(
            run(3, [PROGRAMS / "absent_rank.py", behavior], 120, environment={"PYCOLL_WATCH": str(roll)}, patience=5)
        )
    )
    job.start()
    command = [sys.executable, "-m", "pycoll.watch", str(roll)]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        seen = subprocess.run(command, capture_output=True, text=True, check=False)
        if seen.stdout.count("in it") == 2:
            break
        time.sleep(0.5)
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=90)
    if "--end-after" not in options:
        subprocess.run([*command, "--end-after", "1"], capture_output=True, check=False, timeout=90)
    job.join()
    return done, jobs[0]


def test_a_rank_that_sleeps_is_named_with_its_stack(tmp_path):
    done, _ = watching(tmp_path, "sleep", "--stacks")
    assert done.returncode == 0, done.stderr
    assert "Rank 1 never came to call 8 (allreduce)." in done.stdout
    own = done.stdout.partition("Rank 1:\n")[2].partition("Rank 2:")[0]
    assert "absent_rank.py" in own and "allreduce" not in own


def test_a_stopped_rank_is_named_and_the_job_is_ended(tmp_path):
    done, job = watching(tmp_path, "stop", "--end-after", "3")
    assert done.returncode == 1, done.stderr
    assert "Rank 1 never came to call 8 (allreduce)." in done.stdout
    assert "no answer: the process is stopped" in done.stdout
    assert "No rank has moved for 3 s" in done.stdout
    assert job.code != 0 and not job.timed_out
