"""What messages cost: the simulation's parameters, set by hand or fitted by `pycoll.simulate.calibrate`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from ..base.files import write_json

KINDS: dict[str, tuple[Any, str]] = {
    "float": (Real, "a finite number that is not negative"),
    "int": (Integral, "an integer that is not negative"),
    "bool": (bool, "True or False"),
}
LINKS = "between", "inside"
SWITCHES = {"0": False, "false": False, "1": True, "true": True}


def _check(owner: Link | Network) -> None:
    """ValueError unless all numbers are finite and not negative, and integers where they must be."""
    for each in fields(owner):
        value = getattr(owner, each.name)
        if each.type in KINDS:
            kind, what = KINDS[str(each.type)]
            if not isinstance(value, kind) or not 0 <= value < math.inf:
                raise ValueError(f"{each.name}={value!r} is not {what}")
        elif not isinstance(value, Link):
            raise TypeError(f"{each.name}={value!r} is not a pycoll.simulate.Link")


@dataclass(frozen=True)
class Link:
    """What carries messages between two ranks, each way: a host's link, or a host's memory.

    Messages of different pairs of ranks share it, in turns of as many bytes each, a `frame` or, of long messages, more;
    without a frame each waits for the whole of the one before.
    """

    alpha: float = 0.0  # seconds from the last byte's departure to its arrival
    beta: float = 0.0  # seconds per byte
    overhead: float = 0.0  # seconds that either rank spends on a message, or on each of its segments
    buffer: int = 0  # bytes that a send may leave behind when it is complete; longer segments wait for their receiver
    frame: int = 0  # bytes
    shaped: bool = False  # a frame passes at once, and the next one waits for as long as it should have taken

    def __post_init__(self) -> None:
        _check(self)
        if self.shaped and not self.frame:
            raise ValueError("shaped=True needs a frame: how many bytes pass at once")


@dataclass(frozen=True)
class Network:
    """Hosts with a link each, the ranks inside them, and the switches between them.

    Where no numbers are given they are of the order of a cluster with 100 Gbit/s between its hosts: an example, not a
    measurement.
    """

    between: Link = field(default_factory=lambda: Link(alpha=1.5e-6, beta=8e-11, overhead=0.3e-6))
    inside: Link = field(default_factory=lambda: Link(alpha=0.3e-6, beta=1e-10, overhead=0.2e-6))  # one for each rank
    gamma: float = 1e-10  # seconds per byte combined
    hosts_per_switch: int = 0  # 0: all hosts hang on one switch
    oversubscription: float = 1.0  # a switch's links downwards, divided by its link upwards

    def __post_init__(self) -> None:
        _check(self)
        if self.oversubscription < 1:
            raise ValueError(f"oversubscription={self.oversubscription!r} is less than 1, the full bisection bandwidth")
        if self.oversubscription > 1 and not self.hosts_per_switch:
            raise ValueError(
                f"oversubscription={self.oversubscription!r} needs hosts_per_switch: one switch has no trunk"
            )

    @property
    def trunk(self) -> float:
        """Seconds per byte of a switch's link upwards."""
        return self.between.beta * self.oversubscription / self.hosts_per_switch if self.hosts_per_switch else 0.0


def write(network: Network, path: str | Path, **more: Any) -> None:
    """Write a network, and facts about it, as JSON."""
    write_json(path, {"network": asdict(network), **more})


def read(path: str | Path) -> Network:
    """A network as `write` wrote it; ValueError if it is not one, OSError if there is no such file."""
    try:
        document = json.loads(Path(path).read_text())
        if not isinstance(document, dict) or "network" not in document:
            raise ValueError('its top level is not an object with a "network"')
        return _made(document["network"])
    except RecursionError:
        raise ValueError(f"{path} is not a network: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path} is not a network: {error}") from None


def changed(network: Network, settings: Sequence[str]) -> Network:
    """The network with other parameters: ``gamma=1e-10``, ``between.alpha=2e-6``; ValueError names a wrong one."""
    values: dict[str, Any] = asdict(network)
    valid = [name for name, value in values.items() if not isinstance(value, dict)]
    valid += [f"{link}.{name}" for link in LINKS for name in values[link]]
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in valid:
            raise ValueError(f"{setting!r}: {name!r} is not one of: {', '.join(valid)}")
        owner, _, part = name.rpartition(".")
        group = values[owner] if owner else values
        kind = type(group[part])
        try:
            group[part] = SWITCHES[text.lower()] if kind is bool else kind(text)
        except (KeyError, ValueError):
            raise ValueError(f"{setting!r} does not give a value for {name}") from None
    return _made(values)


def _made(values: Any) -> Network:
    """The network of these values, as JSON holds them; those that are not there are the example's."""
    _check_names(values, Network, "network")
    links: dict[str, Any] = {}
    for name in LINKS:
        if name in values:
            _check_names(values[name], Link, name)
            links[name] = Link(**values[name])
    return Network(**{**values, **links})


def _check_names(values: Any, kind: type[Link | Network], owner: str) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"{owner}={values!r} is not an object with numbers")
    prefix = f"{owner}." if owner in LINKS else ""
    valid = [f"{prefix}{each.name}" for each in fields(kind)]
    for name in values:
        if f"{prefix}{name}" not in valid:
            raise ValueError(f"{prefix + name!r} is not one of: {', '.join(valid)}")
