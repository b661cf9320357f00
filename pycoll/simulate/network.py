"""What messages cost: the parameters of the simulation, set by hand or fitted by ``python -m pycoll.simulate --calibrate``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ..files import write_json
from ..schedule import Hosts


def _not_negative(owner: object, but: Sequence[str] = ()) -> None:
    for each in fields(owner):  # type: ignore[arg-type]
        value = getattr(owner, each.name)
        if isinstance(value, int | float) and not value >= 0:
            raise ValueError(f"{each.name}={value!r} is negative or not a number")


@dataclass(frozen=True)
class Link:
    """What carries messages between two ranks, each way: a host's link, or a host's memory.

    Messages of different pairs of ranks share it, `frame` bytes of one after `frame` bytes of another; without a
    frame each waits for the whole of the one before.
    """

    alpha: float = 0.0  # seconds from the last byte's departure to its arrival
    beta: float = 0.0  # seconds per byte
    overhead: float = 0.0  # seconds that either rank spends on a message, or on each of its segments
    buffer: int = 0  # bytes that a send may leave behind when it is complete; longer segments wait for their receiver
    frame: int = 0  # bytes
    shaped: bool = False  # a frame passes at once, and the next one waits for as long as it should have taken

    def __post_init__(self) -> None:
        _not_negative(self)


@dataclass(frozen=True)
class Network:
    """Hosts with a link each, ranks inside them, and what is between them.

    Where no numbers are given they are of the order of a cluster with 100 Gbit/s between its hosts: an example, not a
    measurement.
    """

    between: Link = field(default_factory=lambda: Link(alpha=1.5e-6, beta=8e-11, overhead=0.3e-6))
    inside: Link = field(default_factory=lambda: Link(alpha=0.3e-6, beta=1e-10, overhead=0.2e-6))  # one for each rank
    gamma: float = 1e-10  # seconds per byte combined
    hosts_per_switch: int = 0  # 0: all hosts hang on one switch
    oversubscription: float = 1.0  # a switch's links downwards, divided by its link upwards

    def __post_init__(self) -> None:
        _not_negative(self)
        if self.oversubscription < 1:
            raise ValueError(f"oversubscription={self.oversubscription!r} is less than 1, the full bisection bandwidth")

    @property
    def trunk(self) -> float:
        """Seconds per byte of a switch's link upwards."""
        return self.between.beta * self.oversubscription / self.hosts_per_switch if self.hosts_per_switch else 0.0


def flat(alpha: float, beta: float, gamma: float) -> Network:
    """The network of the formulas: one link for each rank, nothing but alpha, beta and gamma."""
    link = Link(alpha, beta)
    return Network(link, link, gamma)


def write(network: Network, path: str | Path, **more: Any) -> None:
    """Write a network, and what else is to be known of it, as JSON."""
    write_json(path, {"network": asdict(network), **more})


def read(path: str | Path) -> Network:
    """A network as `write` wrote it; ValueError if it is not one, OSError if there is no such file."""
    try:
        given = json.loads(Path(path).read_text())["network"]
        links = {name: Link(**given.pop(name)) for name in ("between", "inside") if name in given}
        return Network(**links, **given)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is not a network: {error!r}") from None


def hosts_of(ranks: int, ranks_per_host: int) -> Hosts:
    """The host of each rank, one host after the other."""
    return None if ranks_per_host == 1 else tuple(rank // ranks_per_host for rank in range(ranks))
