"""The layout of the tests mirrors the layout of the source, and tests/README.md lists the exceptions."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
ROOT = TESTS.parent
KINDS = ["pure", "mpi", "gpu", "jobs"]
OUTSIDE = ["docs", "examples", "tests"]  # not part of the package
MODULES_HEADER = "| modules | tests |\n|---|---|\n"


def sources(folder):
    """Return the names with which test files in a folder may begin: its modules, its packages, and its own name."""
    above = ROOT if folder.parts[:1] and folder.parts[0] in OUTSIDE else ROOT / "pycoll"
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


def has_code(path):
    """Return whether a module does more than import others."""
    kinds = ast.FunctionDef, ast.ClassDef
    return path.name != "__init__.py" or any(isinstance(node, kinds) for node in ast.walk(ast.parse(path.read_text())))


def has_tests_of_its_name(module):
    """Return whether a test file has the name of a module; test_comm_objects.py is of comm_objects, and not of comm."""
    folder = module.parent.relative_to(ROOT / "pycoll")
    for path in (path for kind in KINDS for path in (TESTS / kind / folder).glob("test_*.py")):
        name = path.stem.removeprefix("test_")
        fitting = [one for one in sources(folder) if name == one or name.startswith(f"{one}_")]
        if module.stem.strip("_") == max(fitting, key=len, default=None):
            return True
    return False


def test_each_other_module_is_in_the_table():
    modules = [path for path in (ROOT / "pycoll").rglob("*.py*") if path.suffix in (".py", ".pyx") and has_code(path)]
    others = {path for path in modules if not has_tests_of_its_name(path)}
    listed = set()
    for row in (TESTS / "README.md").read_text().partition(MODULES_HEADER)[2].splitlines():
        patterns, tests = (re.findall("`(.*?)`", cell) for cell in row.strip("|").split("|"))
        for pattern in patterns:
            named = others & {*ROOT.glob(pattern)}
            assert named, f"{pattern} names no module that needs a row"
            listed |= named
        assert tests, row
        for pattern in tests:
            assert [*ROOT.glob(pattern)], f"{pattern} names no test file"
    missing = others - listed
    assert not missing
