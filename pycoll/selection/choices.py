"""The choices of the user: for a communicator, or in the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, MutableMapping
from functools import cache

from ..base import settings
from ..schedule.registry import COLLECTIVES, find


def primitive_called(name: str) -> str:
    """The primitive of a function or method of this name; the KeyError for unknown names lists all."""
    primitive = {"reduce_scatter_block": "reduce_scatter"}.get(name.lower(), name.lower())
    if primitive not in COLLECTIVES:
        raise KeyError(f"{name!r} is not one of: {', '.join(COLLECTIVES)}")
    return primitive


class Choices(MutableMapping[str, str]):
    """The algorithms of calls that name none, as in ``choices["Allreduce"] = "ring"``.

    Keys are names of primitives, in lower case or as in MPI.
    """

    ever_made = False  # in this process, so that most communicators need not look for some to inherit

    def __init__(self, changed: Callable[[], object] = lambda: None) -> None:
        self._names: dict[str, str] = {}
        self.changed = changed

    def of(self, primitive: str) -> str | None:
        """The choice for a primitive, by its name in lower case; None if there is none."""
        return self._names.get(primitive)

    def __getitem__(self, primitive: str) -> str:
        return self._names[primitive_called(primitive)]

    def __setitem__(self, primitive: str, algorithm: str) -> None:
        primitive = primitive_called(primitive)
        find(primitive, algorithm)
        self._names[primitive] = algorithm
        Choices.ever_made = True
        self.changed()

    def __delitem__(self, primitive: str) -> None:
        del self._names[primitive_called(primitive)]
        self.changed()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"Choices({self._names})"


def _variable(primitive: str) -> str:
    return f"PYCOLL_{primitive.upper()}"


def known_variables() -> list[str]:
    """The environment variables that pycoll reads."""
    return [*settings.VARIABLES, *map(_variable, COLLECTIVES)]


def unknown_variables() -> str:
    """A warning about unknown environment variables that begin with PYCOLL_; empty if there are none."""
    known, problems = known_variables(), []
    ends = [name.removeprefix("PYCOLL_") for name in known]  # the prefix would make all names alike
    for name in sorted(os.environ):
        if name.upper().startswith("PYCOLL_") and name not in known:
            import difflib

            nearest = difflib.get_close_matches(name.upper().removeprefix("PYCOLL_"), ends, 1, 0.85)
            hint = f"; is it PYCOLL_{nearest[0]}?" if nearest else ""
            problems.append(f"the environment variable {name} is not known and has no effect{hint}")
    return "; ".join(problems)


@cache
def algorithm_from_environment(primitive: str) -> str | None:
    """The value of ``PYCOLL_<PRIMITIVE>``; raises ValueError if there is no such algorithm."""
    variable = _variable(primitive)
    name = os.environ.get(variable)
    if name:
        try:
            find(primitive, name)
        except ValueError as error:
            raise ValueError(f"environment variable {variable}={name!r}: {error}") from None
    return name or None
