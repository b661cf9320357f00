"""Run the GPU tests and benchmarks on this machine: ``python -m pycoll.bench.gpu [STEP ...]``, without mpiexec.

Each step writes its output to FOLDER/STEP.txt, and benchmarks write their records to FOLDER/STEP.json.  If the package
libucx-cu12 or libucx-cu13 is installed, MPI uses its UCX, which makes the wheels of Open MPI and MPICH CUDA-aware.
Together, the steps take about five minutes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from argparse import RawDescriptionHelpFormatter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from pycoll.base.command_line import Parser, in_words
from pycoll.base.files import write_atomically

LIMIT = 600.0  # seconds of a step


class Output(NamedTuple):
    """What a step printed, and whether it succeeded."""

    text: str
    good: bool


def with_ucx() -> dict[str, str]:
    """Return the settings by which MPI uses the UCX of the package libucx-cu12 or libucx-cu13, if it is installed."""
    found = find_spec("libucx")
    if found is None or found.origin is None:
        return {}
    library = Path(found.origin).parent / "lib"
    return {
        "LD_PRELOAD": ":".join(str(library / f"lib{name}.so.0") for name in ("ucs", "ucm", "uct", "ucp")),
        "MPIR_CVAR_NOLOCAL": "1",
        "MPIR_CVAR_CH4_NETMOD": "ucx",
        "OMPI_MCA_pml": "ucx",
        "OMPI_MCA_pml_ucx_tls": "any",
        "OMPI_MCA_pml_ucx_devices": "any",
    }


def on_ranks(ranks: int, *arguments: str, **settings: str) -> Output:
    """Run ``python ARGUMENTS`` on several ranks, with these environment variables."""
    from tests.launch import run  # here, because an installed package has no tests

    job = run(ranks, [*arguments], LIMIT, environment=with_ucx() | settings)
    return Output(job.output, job.code == 0 and not job.timed_out)


def host(_: Path) -> Output:
    """Print the GPUs, their links, and the shared memory of the host."""
    if shutil.which("nvidia-smi") is None:
        return Output("there is no nvidia-smi\n", False)
    commands = [["nvidia-smi"], ["nvidia-smi", "topo", "-m"], ["df", "-h", "/dev/shm"]]
    done = [subprocess.run(each, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for each in commands]
    return Output("".join(each.stdout for each in done), done[0].returncode == 0)


def info(_: Path) -> Output:
    """Print whether MPI is CUDA-aware, and the GPUs of the ranks."""
    found = on_ranks(2, "-m", "pycoll.info")
    return Output(found.text, found.good and "GPU: none" not in found.text)


def protocol(_: Path) -> Output:
    """Print how UCX moves a message between two GPUs; ``cuda_ipc`` copies directly."""
    return on_ranks(2, "-m", "pycoll.bench.gpu_message", UCX_PROTO_INFO="y")


def _bench(folder: Path, name: str, **settings: str) -> Output:
    options = ["-a", "ring,recursive_doubling,auto", "-b", "4K", "-e", "256M", "-f", "4", "--budget", "20"]
    records = ["--json", str(folder / f"{name}.json")]
    return on_ranks(2, "-m", "pycoll.bench", "allreduce", "--device", "cuda", *options, *records, **settings)


def direct(folder: Path) -> Output:
    """Time all-reduces of GPU memory that MPI reads and writes itself."""
    return _bench(folder, "direct")


def staged(folder: Path) -> Output:
    """Time all-reduces that are staged through host memory."""
    return _bench(folder, "staged", PYCOLL_CUDA_AWARE="0")


def copies(folder: Path) -> Output:
    """Compare the times with that of a copy within GPU memory."""
    records = [str(folder / f"{name}.json") for name in ("direct", "staged") if (folder / f"{name}.json").exists()]
    return on_ranks(1, "-m", "pycoll.bench.gpu_copies", *records, "--json", str(folder / "copies.json"))


def every(_: Path) -> Output:
    """Check the results of each algorithm, on three ranks."""
    sizes = ["-b", "64", "-e", "4M", "-f", "16"]
    return on_ranks(3, "-m", "pycoll.bench", "--device", "cuda", "--validate-only", *sizes)


def tests(_: Path) -> Output:
    """Run the tests marked `gpu`."""
    return _tests(2)


def tests4(_: Path) -> Output:
    """Run those of the collectives and of PyTorch on four ranks."""
    return _tests(4, "api/test_collectives.py", "torch")


def _tests(ranks: int, *names: str) -> Output:
    paths = [f"tests/gpu/{name}" for name in names or [""]]
    # 400 s for a test, because the first ones compile kernels
    options = ["-q", "-rs", "--color=no", "-m", "gpu", "-o", "timeout=400", "--with-mpi"]
    found = on_ranks(ranks, "-m", "pytest", *options, *paths)
    return Output(found.text, found.good and " passed" in found.text)  # not if all are skipped


STEPS: dict[str, Callable[[Path], Output]] = {
    step.__name__: step for step in (host, info, protocol, direct, staged, copies, every, tests, tests4)
}


def main(argv: list[str]) -> int:
    """Run the steps; return 1 if one failed."""
    about = "\n".join(f"  {name:10}{step.__doc__}" for name, step in STEPS.items())
    parser = Parser(
        prog="python -m pycoll.bench.gpu",
        description=f"{__doc__}\nsteps:\n{about}",
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help="run only these steps")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("gpu-results"), metavar="FOLDER", help="(%(default)s)"
    )
    options = parser.parse_args(argv)
    if unknown := [name for name in options.steps if name not in STEPS]:
        parser.error(f"unknown step {unknown[0]}; the steps are {', '.join(STEPS)}")
    if find_spec("tests.gpu") is None:
        parser.error("run it in a checkout of pycoll, which has the tests")
    try:
        options.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(in_words(error))
    failed = []
    for name in options.steps or STEPS:
        print(f"== {name}", flush=True)
        begun = time.monotonic()
        found = STEPS[name](options.output.resolve())
        write_atomically(options.output / f"{name}.txt", lambda file, text=found.text: file.write(text.encode()))
        print("\n".join(found.text.splitlines()[-30:]))
        print(f"{name} {'succeeded' if found.good else 'failed'} after {time.monotonic() - begun:.0f} s\n", flush=True)
        failed += [] if found.good else [name]
    if failed:
        print(f"failed: {', '.join(failed)}; their output is in {options.output}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
