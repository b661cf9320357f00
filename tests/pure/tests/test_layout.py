"""The layout of the tests mirrors the layout of the source."""

from pathlib import Path

TESTS = Path(__file__).parents[2]
KINDS = ["pure", "mpi", "gpu", "jobs"]
OUTSIDE = ["bench", "docs", "examples", "tests"]  # not part of the package


def sources(folder):
    """Return the names with which test files in a folder may begin: its modules, its packages, and its own name."""
    above = TESTS.parent if folder.parts[:1] and folder.parts[0] in OUTSIDE else TESTS.parent / "pycoll"
    modules = [path.stem.strip("_") for path in (above / folder).glob("*.py*")]
    modules += [] if folder.parts else OUTSIDE
    return [*modules, *(path.parent.name for path in (above / folder).glob("*/__init__.py")), folder.name]


def test_each_file_has_the_name_of_a_module():
    found = [path for kind in KINDS for path in (TESTS / kind).rglob("test_*.py") if path != Path(__file__)]
    assert found
    for path in found:
        _, *folders = path.relative_to(TESTS).parent.parts
        name = path.stem.removeprefix("test_")
        names = sources(Path(*folders))
        assert any(name == one or name.startswith(f"{one}_") for one in names), f"{path.relative_to(TESTS)}: {names}"
