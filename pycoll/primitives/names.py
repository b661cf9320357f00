"""The names of algorithms.

Type checkers reject ``algorithm="rign"``: they read `names.pyi`, which lists the names of each primitive.  To write it:
``python -m pycoll.primitives.names > pycoll/primitives/names.pyi``.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill
from typing import NewType

from ..schedule.registry import NATIVE, PRIMITIVES, algorithms_of

AlgorithmName = NewType("AlgorithmName", str)
"""The name of an algorithm, read from a command line or registered by the program."""


def algorithms(primitive: str) -> list[AlgorithmName]:
    """List the names of the algorithms of a primitive.

    Parameters
    ----------
    primitive : str
        The name of a collective, for example "allreduce".

    Returns
    -------
    list of str
        The names that ``algorithm=`` accepts.

    Raises
    ------
    ValueError
        If there is no such primitive.
    """
    return [AlgorithmName(name) for name in algorithms_of(primitive)]


def stub() -> str:
    """The text of `names.pyi`."""
    return "\n".join(["# Written by `python -m pycoll.primitives.names`", "# fmt: off", *_lines(), ""])


def _lines() -> Iterator[str]:
    yield ""
    yield "from typing import Literal, NewType, TypeAlias"
    yield ""
    yield 'AlgorithmName = NewType("AlgorithmName", str)'
    yield "def algorithms(primitive: str) -> list[AlgorithmName]: ..."
    listed = {name.title().replace("_", ""): [*algorithms_of(name), NATIVE] for name in PRIMITIVES}
    listed["Neighbors"] = [*algorithms_of("neighbor_allgather"), NATIVE]
    listed["NeighborAlltoall"] = [*algorithms_of("neighbor_alltoall"), NATIVE]
    listed["Sharding"] = [name for name in algorithms_of("allgather") if name in algorithms_of("reduce_scatter")]
    for title, names in listed.items():
        quoted = fill(", ".join(f'"{name}"' for name in names), 116, break_on_hyphens=False)
        yield f"{title}: TypeAlias = AlgorithmName | Literal[\n    {quoted.replace(chr(10), chr(10) + '    ')}\n]"


if __name__ == "__main__":
    print(stub(), end="")
