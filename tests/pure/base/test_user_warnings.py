"""Warnings point to the line of the program, not to a line of pycoll."""

import contextlib
from functools import partial

import pytest

from pycoll.base.user_warnings import warn


def inside(module, depth):
    """Return a function of a module with this name that warns after `depth` calls within the module."""
    names = {"__name__": module, "warn": warn}
    source = "def call(depth):\n    warn('careful') if depth == 0 else call(depth - 1)"
    exec(compile(source, f"{module}.py", "exec"), names)
    return partial(names["call"], depth)


@pytest.mark.parametrize("depth", [0, 1, 5])
@pytest.mark.parametrize("module", ["pycoll", "pycoll.runtime.attach"])
def test_the_line_of_the_caller_is_shown(module, depth):
    with pytest.warns(RuntimeWarning, match="careful") as caught:
        inside(module, depth)()
    assert [warning.filename for warning in caught] == [__file__]


def test_the_line_of_another_module_is_shown():
    with pytest.warns(RuntimeWarning) as caught:
        inside("pycollider", 2)()
    assert caught[0].filename == "pycollider.py"


def test_decorators_of_the_standard_library_are_skipped():
    @contextlib.contextmanager
    def decorator():
        yield

    with pytest.warns(RuntimeWarning) as caught:
        decorator()(inside("pycoll.parallel.ddp", 1))()
    assert caught[0].filename == __file__
