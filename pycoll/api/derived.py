"""Makes functions from a signature and source text, for example the nonblocking form of a blocking function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any


class AtFirstUse:
    """A method that is made when it is first used: making all methods would take time at the start of each program."""

    def __init__(self, make: Callable[[], Callable[..., Any]]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type) -> Any:
        setattr(self._owner, self._name, self._make())
        return getattr(owner if instance is None else instance, self._name)


def derived(
    blocking: Callable[..., Any],
    begin: Callable[..., Any],
    name: str,
    kind: str,
    more: Sequence[inspect.Parameter] = (),
    first: Sequence[str] = (),
    **names: Any,
) -> Callable[..., Any]:
    """Make a form of a blocking function that passes its arguments by name to `begin`; `more` parameters come last.

    `first` are source lines that run before, with `names`; they may return.
    """
    parameters = list(inspect.signature(blocking).parameters.values())
    named = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    signature = inspect.Signature([*named, *more, *parameters[len(named) :]])
    passed = ", ".join(f"{'recvbuf' if p == 'buf' else p}={p}" for p in signature.parameters)
    function = with_body(blocking, name, signature, [*first, f"return begin({passed})"], begin=begin, **names)
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
