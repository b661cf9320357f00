"""Kill ranks of elastic training at random: ``python -m pycoll.bench.train.kills --driver ddp --kills 30``.

Other options are those of ``python -m pycoll.bench.train``.  The command runs ``mpiexec --with-ft ulfm`` of Open MPI.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from pycoll import parallel
from pycoll.base.command_line import Parser
from pycoll.base.progress_bar import progress_bar

from ..results import table, write_results
from .__main__ import parse as parse_training
from .data import CLASSES
from .model import Perceptron

TOKEN = "KILLED_JOB_OF_PYCOLL"  # in the environment of all processes of a job
LIMIT = 120.0  # seconds for a job
ENOUGH = 0.95  # accuracy on the digits
COLUMNS = {
    "victims": ("killed ranks", ""),
    "delay": ("after s", ".2f"),
    "step": ("goes on after step", ""),
    "ranks": ("with ranks", ""),
    "repeated": ("repeated steps", ""),
    "seconds": ("recovery (s)", ".3f"),
    "accuracy": ("accuracy", ".2%"),
    "problem": ("problem", ""),
}


class JobResult(NamedTuple):
    """What became of a job."""

    problem: str
    started: float  # seconds until the end of the first epoch
    ended: float
    result: dict


class Job:
    """A training job, whose ranks can be killed."""

    def __init__(self, options: argparse.Namespace, others: list[str], folder: Path) -> None:
        self.ranks, self.json, self.checkpoint = options.ranks, folder / "result.json", folder / "checkpoint"
        self.options, self.others = options, others

    def run(self, victims: list[int], delay: float) -> JobResult:
        """Run the job, and kill ranks some seconds after the first epoch."""
        for path in (self.json, self.checkpoint):
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)
        token, watched = uuid.uuid4().hex, self.checkpoint.parent / "watch"
        command = [_mpiexec(), "--with-ft", "ulfm", "-n", str(self.ranks), sys.executable, "-m", f"{__package__}"]
        command += ["--elastic", "--driver", self.options.driver, "--save", str(self.checkpoint)]
        command += ["--json", str(self.json), *self.others]
        job = subprocess.Popen(
            command,
            env=os.environ | {TOKEN: token, "PYCOLL_WATCH": str(watched)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert job.stdout
        lines = []
        begun = time.monotonic()
        for line in job.stdout:
            lines.append(line)
            if line.startswith("epoch"):
                break
        started = time.monotonic() - begun
        if victims:
            time.sleep(delay)
            processes = _processes(token)
            for victim in () if self.json.exists() else victims:  # not after training, in MPI_Finalize
                with contextlib.suppress(ProcessLookupError, KeyError):
                    os.kill(processes[victim], signal.SIGKILL)
        try:
            rest, _ = job.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            roll = subprocess.run(
                [sys.executable, "-m", "pycoll.watch", str(watched), "--stacks"], capture_output=True, text=True
            ).stdout
            for process in (job.pid, *_processes(token).values()):
                os.kill(process, signal.SIGKILL)
            rest, _ = job.communicate()
            return JobResult(f"it hangs: {''.join([*lines, rest])[-500:]}\n{roll}", started, LIMIT, {})
        ended = time.monotonic() - begun
        if job.returncode or not self.json.exists():
            return JobResult(f"exit status {job.returncode}: {''.join([*lines, rest])[-1500:]}", started, ended, {})
        result = json.loads(self.json.read_text())["records"][0]
        return JobResult(self.damaged(), started, ended, result)

    def damaged(self) -> str:
        """Return the problem with the checkpoint, which must be that of the last epoch, or an empty string."""
        model = Perceptron([64, *[self.options.hidden] * self.options.layers, CLASSES])
        parameters = model.initial(0, np.dtype("float64"))
        try:
            with parallel.DistributedDataParallel(parameters, comm=MPI.COMM_SELF) as driver:
                epochs = parallel.load(self.checkpoint, driver)["epochs"]
        except (OSError, ValueError) as error:
            return str(error)
        return "" if epochs == self.options.epochs else f"the checkpoint is that of epoch {epochs}"


def _mpiexec() -> str:
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else "mpiexec"


def _processes(token: str) -> dict[int, int]:
    """The processes of a job by their rank."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            variables = dict(
                line.partition("=")[::2] for line in path.read_bytes().decode(errors="replace").split("\0")
            )
            if variables.get(TOKEN) == token and "OMPI_COMM_WORLD_RANK" in variables:
                found[int(variables["OMPI_COMM_WORLD_RANK"])] = int(path.parent.name)
    return found


def parse(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parse the command line; return also the options for the training job."""
    parser = Parser(prog="python -m pycoll.bench.train.kills", description=__doc__)
    parser.add_argument("--driver", choices=["ddp", "fsdp", "ps"], default="ddp", help="the driver (%(default)s)")
    parser.add_argument("-n", dest="ranks", type=int, default=4, help="number of ranks (%(default)s)")
    parser.add_argument("--kills", type=int, default=30, help="number of jobs (%(default)s)")
    parser.add_argument("--together", type=int, default=1, help="ranks that are killed at once (%(default)s)")
    parser.add_argument("--first", action="store_true", help="always kill rank 0")
    parser.add_argument("--seed", type=int, default=0, help="seed of ranks and moments (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the data (%(default)s)")
    parser.add_argument("--hidden", type=int, default=64, help="width of the hidden layers (%(default)s)")
    parser.add_argument("--layers", type=int, default=2, help="number of hidden layers (%(default)s)")
    options, others = parser.parse_known_args(argv)
    if not 1 <= options.together < options.ranks:
        parser.error(f"--together {options.together}: at least one of {options.ranks} ranks must die, and one go on")
    for name in ("epochs", "hidden", "layers"):
        others += [f"--{name}", str(getattr(options, name))]
    parse_training(["--elastic", "--driver", options.driver, *others])  # ends the program if options are wrong
    return options, others


def killed(job: Job, options: argparse.Namespace, longest: float) -> dict:
    """Run jobs until ranks were killed during training, not after it; return the record of the last one."""
    while True:
        victims = [0] if options.first else options.choices.sample(range(options.ranks), options.together)
        delay = options.choices.uniform(0, longest)
        outcome = job.run(victims, delay)
        recoveries = outcome.result.get("recoveries", ())
        if recoveries or outcome.problem:
            last = recoveries[-1] if recoveries else {"step": None, "seconds": None, "ranks": None}
            return {
                **last,
                "victims": " ".join(map(str, victims)),
                "delay": delay,
                "repeated": sum(recovery["repeated"] for recovery in recoveries),
                "accuracy": outcome.result.get("accuracy", 0.0),
                "problem": outcome.problem,
            }


def main(argv: list[str]) -> int:
    """Run the jobs and print what became of them; return 1 if there was a problem."""
    options, others = parse(argv)
    options.choices = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        job = Job(options, others, Path(folder))
        whole = job.run([], 0.0)
        if whole.problem:
            print(f"without a failure: {whole.problem}")
            return 1
        longest = whole.ended - whole.started
        shown = sys.stderr.isatty()
        records = [
            killed(job, options, longest) for _ in progress_bar(range(options.kills), "kills", "job", shown=shown)
        ]
    del options.choices
    write_results(options.json, {"options": vars(options), "others": others, "records": records})
    print(table(records, COLUMNS))
    seconds = [record["seconds"] for record in records if record["seconds"] is not None]
    bad = sum(bool(record["problem"]) or record["accuracy"] < ENOUGH for record in records)
    print(f"{len(records)} jobs in which ranks were killed, {bad} with a problem or less than {ENOUGH:.0%} accuracy")
    if seconds:
        print(f"recovery: median {statistics.median(seconds):.3f} s, at most {max(seconds):.3f} s")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
