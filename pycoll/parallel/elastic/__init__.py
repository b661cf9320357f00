"""Elastic training: when ranks fail, the others go on."""

from .run import run
from .state import Recovery, State

__all__ = ["Recovery", "State", "run"]
