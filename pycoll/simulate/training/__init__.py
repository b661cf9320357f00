"""Simulation of a whole training step: ``python -m pycoll.simulate training``.

A `Model` is read from a JSON file, and `Groups` is a mesh of ranks on a network.  `simulate_step` returns a `Step`.
"""

from .groups import GroupCollective, Groups
from .model import InvalidModel, Layer, Model, read, write
from .profile import profile
from .stage import How, Span, Stage
from .step import Step, simulate_step

__all__ = [
    "GroupCollective",
    "Groups",
    "How",
    "InvalidModel",
    "Layer",
    "Model",
    "Span",
    "Stage",
    "Step",
    "profile",
    "read",
    "simulate_step",
    "write",
]
