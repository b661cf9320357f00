"""The parameters of the simulated network, set by hand or fitted by `pycoll.simulate.calibrate`."""

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
UNCUT = 1 << 62  # bytes: no message is longer
LINKS = "between", "across", "inside"
SWITCHES = {"0": False, "false": False, "1": True, "true": True}


def _check(owner: Link | Network) -> None:
    """Raise ValueError unless all numbers are finite and not negative, and integers where required."""
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
    """The link of a host in each direction, or the memory of a host for messages inside it.

    Parameters
    ----------
    alpha : float
        The seconds from the departure of the last byte to its arrival.
    beta : float
        The seconds per byte.
    overhead : float
        The seconds that the sender and the receiver each spend on a message, or on each segment of it.
    buffer : int
        The bytes that may still be on the sender when a send completes.  Longer segments wait for their receiver.
    frame : int
        The bytes of one turn.  Messages of different pairs of ranks take turns of equal size on the link, with larger
        turns for long messages.  If it is 0, each message waits until the one before has passed completely.
    shaped : bool
        If true, a frame passes at once, and the next frame waits for the time that the first should have taken.

    Raises
    ------
    ValueError
        If a number is negative, not finite or not an integer where required, or ``shaped=True`` is used without a
        frame.
    """

    alpha: float = 0.0
    beta: float = 0.0
    overhead: float = 0.0
    buffer: int = 0
    frame: int = 0
    shaped: bool = False

    def __post_init__(self) -> None:
        _check(self)
        if self.shaped and not self.frame:
            raise ValueError("shaped=True needs a frame: the number of bytes that pass at once")


@dataclass(frozen=True)
class Network:
    """Hosts with one link each, the ranks inside them, and the switches between them.

    The defaults are of the order of a cluster with 100 Gbit/s between its hosts.  They are an example, not a
    measurement.

    Parameters
    ----------
    between : Link
        The link of each host to the other hosts.
    inside : Link
        The link of each rank to the other ranks of its host, or of its smallest domain.
    gamma : float
        The seconds per byte combined.
    hosts_per_switch : int
        The number of hosts on each switch; 0 means that all hosts are on one switch.
    oversubscription : float
        The total bandwidth of the links of a switch to its hosts, divided by the bandwidth of its uplink.
    hop : float
        The seconds that each link after the first one adds to `between.alpha`, on a route between hosts.
    across : Link
        The link of each domain of a host, such as a socket, to the other domains of the host.

    Raises
    ------
    TypeError
        If a link is not a `Link`.
    ValueError
        If a number is negative, not finite or not an integer where required, or if the oversubscription is below 1, or
        above 1 without `hosts_per_switch`.
    """

    between: Link = field(default_factory=lambda: Link(alpha=1.5e-6, beta=8e-11, overhead=0.3e-6))
    inside: Link = field(default_factory=lambda: Link(alpha=0.3e-6, beta=1e-10, overhead=0.2e-6))
    gamma: float = 1e-10
    hosts_per_switch: int = 0
    oversubscription: float = 1.0
    hop: float = 0.0
    across: Link = field(default_factory=lambda: Link(alpha=0.5e-6, beta=5e-11, overhead=0.2e-6))

    def __post_init__(self) -> None:
        _check(self)
        if self.oversubscription < 1:
            raise ValueError(f"oversubscription={self.oversubscription!r} is less than 1, the full bisection bandwidth")
        if self.oversubscription > 1 and not self.hosts_per_switch:
            raise ValueError(
                f"oversubscription={self.oversubscription!r} needs hosts_per_switch: one switch has no uplink"
            )


def write(network: Network, path: str | Path, **more: Any) -> None:
    """Write a network, and facts about it, as JSON."""
    write_json(path, {"network": asdict(network), **more})


def read(path: str | Path) -> Network:
    """Read a network that `write` wrote; raise ValueError if the file is not one, OSError if there is no such file."""
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
    """Return the network with other parameters, such as ``between.alpha=2e-6``; raise ValueError for a wrong one."""
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
            raise ValueError(f"{setting!r} has no valid value for {name}") from None
    return _made(values)


def _made(values: Any) -> Network:
    """Make a network from these values, as read from JSON; missing values have the defaults."""
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
