"""Makes functions from a signature and source text, for example the nonblocking form of a blocking function."""

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
) -> Callable[..., Any]:
    """Make a form of a blocking function that passes its arguments by name to `begin`."""
    parameters = list(inspect.signature(blocking).parameters.values())
    signature = inspect.Signature(parameters)
    passed = ", ".join(f"{'recvbuf' if p == 'buf' else p}={p}" for p in signature.parameters)
    function = with_body(blocking, name, signature, [f"return begin({passed})"], begin=begin)
    function.__doc__ = f"{kind} `{blocking.__name__}`, with the same parameters and errors.\n\n{_RETURNS[kind]}"
    return function


_RETURNS = {
    "Nonblocking": "Returns\n-------\nRequest\n    The collective in flight.\n",
    "Persistent": "Returns\n-------\nPersistent\n    The collective, which `Start` starts.\n",
}


def with_body(
    like: Callable[..., Any], name: str, signature: inspect.Signature, body: Sequence[str], **names: Any
) -> Callable[..., Any]:
    """Make a function from source lines, as in dataclasses: Python binds the arguments, which is the fastest way.

    A keyword-only parameter of a method is an ordinary one in the function, because Python calls that faster.
    """
    wanted, keywords, is_method = [], False, "self" in signature.parameters
    for p in signature.parameters.values():
        if p.kind is p.KEYWORD_ONLY and not keywords and not is_method:
            wanted.append("*")
            keywords = True
        wanted.append(p.name if p.default is p.empty else f"{p.name}=default_{p.name}")
    names |= {f"default_{p.name}": p.default for p in signature.parameters.values()} | {"__name__": __name__}
    exec("\n    ".join([f"def {name}({', '.join(wanted)}):", *body]), names)
    function: Callable[..., Any] = functools.wraps(like)(names[name])
    function.__name__ = function.__qualname__ = name
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function
