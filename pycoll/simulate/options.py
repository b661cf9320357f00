"""The options of a network on the command lines of the simulation."""

from __future__ import annotations

import argparse
from pathlib import Path

from .network import Network, changed, read
from .topology_names import WRITTEN


def add_network(options: argparse.ArgumentParser) -> None:
    """Add the options that describe hosts and links."""
    options.add_argument("-p", "--ranks-per-host", type=int, help="ranks on each host (1, or as the topology says)")
    options.add_argument("-t", "--topology", help=f"links between hosts: {WRITTEN} (default: one switch)")
    add_parameters(options)


def add_parameters(options: argparse.ArgumentParser) -> None:
    """Add the options that `network_of` reads."""
    options.add_argument("--network", type=Path, metavar="FILE", help="read a network that --calibrate wrote")
    options.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a parameter of the network: gamma, oversubscription, between.alpha, inside.beta, ...",
    )


def network_of(given: argparse.Namespace) -> Network:
    """Return the network that the options describe; raise ValueError or OSError if there is none."""
    return changed(read(given.network) if given.network else Network(), given.set)
