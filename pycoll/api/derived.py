"""Makes the nonblocking and the persistent form of a blocking function, which have the same parameters."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any


def derived(
    blocking: Callable[..., Any],
    begin: Callable[..., Any],
    name: str,
    kind: str,
    more: Sequence[inspect.Parameter] = (),
    at_once: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Make a form of a blocking function that passes its arguments by name to `begin`; `more` parameters come last.

    `at_once` gets the positional arguments of calls that name no algorithm.  It begins the call, or returns None.
    """
    parameters = list(inspect.signature(blocking).parameters.values())
    named = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    signature = inspect.Signature([*named, *more, *parameters[len(named) :]])
    names: dict[str, Any] = {f"default_{p.name}": p.default for p in signature.parameters.values()}
    names |= {"begin": begin, "at_once": at_once}
    # from source text, as in dataclasses: Python binds the arguments itself, which is the fastest way
    exec(_source(name, signature, ", ".join(p.name for p in named) if at_once else ""), names)
    function: Callable[..., Any] = functools.wraps(blocking)(names[name])
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{kind} `{blocking.__name__}`, with the same parameters and errors.\n\n{_RETURNS[kind]}"
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


_RETURNS = {
    "Nonblocking": "Returns\n-------\nRequest\n    The collective in flight.\n",
    "Persistent": "Returns\n-------\nPersistent\n    The collective, which `Start` starts.\n",
}


def _source(name: str, signature: inspect.Signature, for_at_once: str) -> str:
    """The source text of the function."""
    wanted, keywords = [], False
    for p in signature.parameters.values():
        if p.kind is p.KEYWORD_ONLY and not keywords:
            wanted.append("*")
            keywords = True
        wanted.append(p.name if p.default is p.empty else f"{p.name}=default_{p.name}")
    passed = ", ".join(f"{'recvbuf' if p == 'buf' else p}={p}" for p in signature.parameters)
    lines = [f"def {name}({', '.join(wanted)}):"]
    if for_at_once:
        lines.append(f"    if algorithm is None and (begun := at_once({for_at_once})):")
        lines.append("        return begun")
    lines.append(f"    return begin({passed})")
    return "\n".join(lines)
