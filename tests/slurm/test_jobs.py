"""Submit the scripts in slurm/, as a user would, with the `sbatch` on the PATH.

The nodes of the cluster must see the checkout, this Python and the folder given by ``pytest --basetemp``.
cluster/up.sh creates a cluster on the local machine.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.launch import ENVIRONMENT, STAND_IN


def no_cluster():
    """Return the reason why no cluster is available, or an empty string if one is."""
    if not shutil.which("sbatch"):
        return "there is no sbatch on the PATH"
    answer = subprocess.run(["scontrol", "ping"], capture_output=True, text=True)
    return f"sbatch is installed, but no cluster answers: {answer.stdout}{answer.stderr}" if answer.returncode else ""


REASON = no_cluster()
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900), pytest.mark.skipif(bool(REASON), reason=REASON)]

PROGRAMS = Path(__file__).parent / "programs"
SCRIPTS = Path(__file__).resolve().parents[2] / "slurm"
TWO_RANKS = ["--nodes=2", "--ntasks-per-node=1"]
TINY = {"PRIMITIVES": "allreduce bcast", "ALGORITHM": "auto ring", "MAXBYTES": "1K", "STEPFACTOR": "16", "BUDGET": "1"}
ENDED = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}


@pytest.fixture
def submit(tmp_path):
    """Return a function that submits a script from an empty folder; cancel the remaining jobs at the end."""
    jobs = []

    def run(script, *options, **settings):
        command = ["sbatch", "--parsable", *options, str(SCRIPTS / script)]
        environment = {**os.environ, **ENVIRONMENT, "PYTHON": sys.executable, **settings}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        jobs.append(done.stdout.strip().partition(";")[0])
        return jobs[-1]

    yield run
    if jobs:
        subprocess.run(["scancel", "--quiet", *jobs], timeout=240, check=False)


def states(job):
    """Wait until a job, or every task of a job array, has ended, and return the states."""
    deadline = time.monotonic() + 300
    while True:
        command = ["scontrol", "--oneliner", "show", "job", job]
        lines = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout.splitlines()
        found = [line.split("JobState=")[1].split()[0] for line in lines if line]
        if set(found) <= ENDED or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def read(path):
    """Read a file of a job, waiting for it to appear: shared file systems may show it only after the job has ended."""
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    return path.read_text(errors="replace")


def succeeds(job, log):
    found = states(job)
    text = read(log)
    assert set(found) == {"COMPLETED"}, text
    return text


def fails(job, log):
    found = states(job)
    text = read(log)
    assert set(found) == {"FAILED"}, text
    return text


def check_results(path, ranks):
    document = json.loads(read(path))
    assert document["environment"]["ranks"] == ranks
    assert {record["primitive"] for record in document["records"]} <= {"allreduce", "bcast"}
    assert document["records"] and not any(record["wrong"] for record in document["records"])
    assert path.with_suffix(".csv").stat().st_size and path.with_suffix(".png").stat().st_size


def check_report(folder):
    pages = list(folder.glob("*.html"))
    assert pages and all(page.stat().st_size for page in pages)


def test_collectives(submit, tmp_path):
    job = submit("collectives.sbatch", *TWO_RANKS, **TINY)
    text = succeeds(job, tmp_path / f"collectives-{job}.out")
    assert "2 ranks on 2 of 2 nodes" in text
    check_results(tmp_path / f"collectives-{job}" / "results.json", 2)
    check_report(tmp_path / f"collectives-{job}" / "report")


@pytest.mark.slow
def test_settings_by_option(submit, tmp_path):
    """Check the job name, the folder for the results, and the use of Python from the active virtual environment."""
    settings = ",".join(f"{name}={value}" for name, value in {**TINY, "OUT": "here/and there"}.items())
    options = ["--job-name=mine", "--nodes=1", "--ntasks-per-node=2", f"--export=ALL,{settings}"]
    job = submit("collectives.sbatch", *options, PYTHON="", VIRTUAL_ENV=sys.prefix)
    text = succeeds(job, tmp_path / f"mine-{job}.out")
    assert "2 ranks on 1 of 1 nodes" in text
    check_results(tmp_path / "here" / "and there" / "results.json", 2)


@pytest.mark.slow
def test_a_failing_bench_fails_the_job(submit, tmp_path):
    job = submit("collectives.sbatch", *TWO_RANKS, **{**TINY, "PRIMITIVES": "allredcue"})
    text = fails(job, tmp_path / f"collectives-{job}.out")
    assert "allredcue" in text
    assert not (tmp_path / f"collectives-{job}" / "report").exists()


@pytest.mark.slow
def test_ranks_that_are_not_one_job_fail(submit, tmp_path):
    job = submit("collectives.sbatch", *TWO_RANKS, **TINY, MPI_PLUGIN="none")
    text = fails(job, tmp_path / f"collectives-{job}.out")
    assert "error: the communicator does not have the size of the allocation, 2: srun --mpi=none does not start" in text
    assert not list((tmp_path / f"collectives-{job}").iterdir())


@pytest.mark.slow
def test_no_mpi4py(submit, tmp_path):
    job = submit("tune.sbatch", *TWO_RANKS, PYTHON="/bin/false")
    text = fails(job, tmp_path / f"tune-{job}.out")
    assert "error: /bin/false cannot import mpi4py with an MPI: activate the virtual environment" in text


@pytest.mark.once
def test_scaling_and_its_report(submit, tmp_path):
    job = submit("scaling.sbatch", "--array=1,2,4", "--nodes=4", "--ntasks-per-node=1", **TINY)
    folder = tmp_path / f"scaling-{job}"
    options = [f"--dependency=afterok:{job}", "--kill-on-invalid-dep=yes"]
    joined = submit("report.sbatch", *options, f"--export=ALL,RESULTS={folder.name}")
    assert len(states(job)) == 3
    for nodes in (1, 2, 4):
        text = succeeds(job, tmp_path / f"scaling-{job}_{nodes}.out")
        assert f"{nodes} ranks on {nodes} of 4 nodes" in text
        check_results(folder / f"nodes-{nodes}.json", nodes)
    assert str(folder / "report") in succeeds(joined, tmp_path / f"report-{joined}.out")
    check_report(folder / "report")


@pytest.mark.slow
def test_scaling_to_more_nodes_than_there_are(submit, tmp_path):
    job = submit("scaling.sbatch", "--array=2", "--nodes=1", "--ntasks-per-node=1", **TINY)
    assert "error: --array requests 2 nodes, but --nodes only 1" in fails(job, tmp_path / f"scaling-{job}_2.out")


@pytest.mark.slow
def test_report_without_results(submit, tmp_path):
    job = submit("report.sbatch", RESULTS="nowhere")
    assert "error: there are no results (*.json) in nowhere" in fails(job, tmp_path / f"report-{job}.out")


def test_training_resumes_from_the_checkpoint(submit, tmp_path):
    seen = []
    for epochs in (1, 3):
        settings = {"EPOCHS": str(epochs), "DRIVER": "fsdp", "TRAIN_OPTIONS": "--steps 2 --hidden 8"}
        job = submit("training.sbatch", *TWO_RANKS, **settings)
        text = succeeds(job, tmp_path / f"training-{job}.out")
        assert ("resuming from training/checkpoint" in text) == (epochs == 3)
        document = json.loads(read(tmp_path / "training" / f"epochs-{job}.json"))
        assert document["environment"]["ranks"] == 2 and document["options"]["driver"] == "fsdp"
        seen.append([record["epoch"] for record in document["records"]])
    assert seen == [[1], [2, 3]]


def ask_to_stop(job, folder):
    subprocess.run(["scancel", "--signal=USR1", job], check=True, timeout=240)


def requeue(job, folder):
    """Requeue the job, as preemption does with PreemptMode=REQUEUE."""
    subprocess.run(["scontrol", "requeue", job], check=True, timeout=240)


def kill_a_rank(job, folder):
    """Kill one of the processes that write to the folder."""
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = status.read_bytes().split(b"\0")
            is_rank = b"pycoll.bench.train" in words and not words[0].endswith(b"srun")
            if is_rank and Path(os.readlink(status.parent / "cwd")) == folder:
                return os.kill(int(status.parent.name), signal.SIGKILL)
    pytest.fail("no rank was found")


def kill_a_node(job, folder):
    """Kill all processes on the last node of the job."""
    shown = subprocess.run(["scontrol", "show", "job", job], capture_output=True, text=True, check=True).stdout
    node = re.search(r" NodeList=n\[?[\d,-]*(\d)", shown)[1]
    pids = subprocess.run(["ip", "netns", "pids", f"{CLUSTER.name}-n{node}"], capture_output=True, text=True).stdout
    for pid in map(int, pids.split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def nodes_come_back():
    """Start the daemons of killed nodes again, after the jobs have ended."""
    yield
    for name in down_nodes():
        daemon = [CLUSTER / "on", name, "slurmd", "-D", "-N", name]
        subprocess.Popen(daemon, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 60
    while down_nodes() and time.monotonic() < deadline:
        time.sleep(0.2)


def down_nodes():
    return subprocess.run(
        ["sinfo", "-h", "-N", "-o", "%N", "-t", "down"], capture_output=True, text=True
    ).stdout.split()


CLUSTER = Path(os.environ.get("SLURM_CLUSTER", "/tmp/pycoll-cluster"))
LOCAL = pytest.mark.skipif(not (CLUSTER / "on").exists(), reason="the cluster is not that of cluster/up.sh")


@pytest.mark.parametrize(
    "interrupt, says",
    [
        (ask_to_stop, "stopped after SIGUSR1; continue with --resume training/checkpoint"),
        pytest.param(requeue, "resuming from training/checkpoint", marks=pytest.mark.slow),
        pytest.param(kill_a_rank, "requeueing after epoch", marks=[LOCAL, pytest.mark.once]),
        pytest.param(kill_a_node, "resuming from training/checkpoint", marks=[LOCAL, pytest.mark.slow]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_training_goes_on_after_an_interruption(nodes_come_back, submit, tmp_path, interrupt, says):
    """The job requeues itself, resumes, and reaches the accuracy."""
    job = submit("training.sbatch", *TWO_RANKS, EPOCHS="60")
    log = tmp_path / f"training-{job}.out"
    deadline = time.monotonic() + 120
    while not (log.exists() and "epoch   6" in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    interrupt(job, tmp_path)
    text = succeeds(job, log)
    assert says in text and "resuming from training/checkpoint" in text
    records = json.loads(read(tmp_path / "training" / f"epochs-{job}.json"))["records"]
    first = records[0]["epoch"]
    assert first > 5 and [record["epoch"] for record in records] == [*range(first, 61)]
    assert records[-1]["accuracy"] >= 0.95
    numbers = [int(number) for number in re.findall(r"^epoch +(\d+):", text, re.MULTILINE)]
    unsent = {first - 1} if interrupt is kill_a_node else set()  # a lost node may take the last line with it
    assert {*range(1, 61)} - {*numbers} <= unsent and len(numbers) <= 61, "at most one epoch is repeated"


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
def test_torch(submit, tmp_path):
    """Run an example, and a program with another backend and an option."""
    job = submit("torch.sbatch", *TWO_RANKS)
    text = succeeds(job, tmp_path / f"torch-{job}.out")
    assert "2 ranks on 2 of 2 nodes" in text and "difference from one process" in text
    program = PROGRAMS / "with_options.py"
    job = submit("torch.sbatch", *TWO_RANKS, PROGRAM=str(program), PROGRAM_OPTIONS="--epochs 3")
    assert "pycoll 2 ['--epochs', '3']" in succeeds(job, tmp_path / f"torch-{job}.out")


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
def test_torch_with_srun_alone(submit, tmp_path):
    script = PROGRAMS / "srun.sbatch"
    job = submit(script, *TWO_RANKS, COMMON=str(SCRIPTS / "common.sh"), PROGRAM=str(PROGRAMS / "train.py"))
    assert "pycoll: 2 ranks, 2 hosts, small loss: True" in succeeds(job, tmp_path / f"srun-{job}.out")


@pytest.mark.slow
def test_torch_without_a_program(submit, tmp_path):
    job = submit("torch.sbatch", *TWO_RANKS, PROGRAM="nowhere.py")
    message = "PROGRAM=nowhere.py is not a file" if find_spec("torch") else "cannot import torch"
    assert f"error: {message}" in fails(job, tmp_path / f"torch-{job}.out").replace(f"{sys.executable} ", "")


def has_gpus():
    return "gpu" in subprocess.run(["sinfo", "--noheader", "--format=%G"], capture_output=True, text=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize("gpu", [False, True])
def test_gpu(submit, tmp_path, gpu):
    """Run with the CuPy stand-in of the GPU tests, or without CuPy: Slurm is only configured as if there were GPUs."""
    if not has_gpus():
        pytest.skip("Slurm knows of no GPU to allocate")
    (tmp_path / "cupy.py").write_text("raise ImportError('there is none')")
    path = os.pathsep.join([str(STAND_IN if gpu else tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    job = submit("gpu.sbatch", *TWO_RANKS, "--gpus-per-node=1", **TINY, PYTHONPATH=path, PYCOLL_CUDA_AWARE="1")
    folder, log = tmp_path / f"gpu-{job}", tmp_path / f"gpu-{job}.out"
    text = succeeds(job, log) if gpu else fails(job, log)
    assert "ranks: 2" in read(folder / "info.txt")
    if gpu:
        check_results(folder / "results.json", 2)
        check_report(folder / "report")
    else:
        assert "error: these ranks have no GPU" in text and not (folder / "results.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["", (PROGRAMS / "dense_memory.py").read_text()], ids=["any memory", "dense memory"])
def test_tune(submit, tmp_path, memory):
    """Check that messages fit into the limit of Slurm: MPICH publishes its addresses with the memory behind them."""
    (tmp_path / "sitecustomize.py").write_text(memory)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    job = submit("tune.sbatch", *TWO_RANKS, TUNING="tuned/for-this.json", **TINY, PYTHONPATH=path)
    succeeds(job, tmp_path / f"tune-{job}.out")
    (one,) = json.loads(read(tmp_path / "tuned" / "for-this.json"))["measurements"]
    assert (one["ranks"], one["hosts"]) == (2, 2) and set(one["primitives"]) == {"allreduce", "bcast"}
