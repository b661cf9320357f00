"""What programs of jobs share.  Their arguments are the name of a function, and the form of its collectives."""

import sys
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

import pycoll

pycoll.abort_on_exception()
world = MPI.COMM_WORLD
rank, size = world.rank, world.size
mine = rank == 1  # whether this rank is the one whose call is different, late or missing
name, form, *arguments = *sys.argv[1:], *["blocking"][: len(sys.argv) < 3]


def run(functions: dict[str, Any]) -> None:
    """Call the function that the arguments name."""
    world.Barrier()  # ranks may start seconds apart
    pycoll.attach(world)
    functions[name](*arguments)
    print("came to its end", flush=True)


def call(primitive: str, *args: Any, **kwargs: Any) -> Any:
    """Call a collective in the form that the arguments name."""
    if form == "nonblocking":
        return getattr(pycoll, f"i{primitive}")(*args, **kwargs).wait()
    if form == "blocking":
        return getattr(pycoll, primitive)(*args, **kwargs)
    with getattr(pycoll, f"{primitive}_init")(*args, **kwargs) as request:
        request.Start()
        return request.wait()


def raises(
    error: type[Exception] | tuple[type[Exception], ...],
    texts: list[str],
    function: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> str:
    """Check that a function raises an error whose message contains the texts; return the message."""
    try:
        function(*args, **kwargs)
    except error as problem:
        for text in texts:
            assert text in str(problem), (text, str(problem))
        return str(problem)
    raise AssertionError(f"no {error}")
