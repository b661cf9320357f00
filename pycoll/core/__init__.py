"""The compiled core: runs collectives of the ranks of a host in memory that they share, and programs with messages.

It is written in Cython, and built if there is a C compiler when pycoll is installed.  Without it, `problem` says why,
and pycoll runs all calls with messages.
"""

from __future__ import annotations

from .not_built import MISSED, NoFront, NoMover, NoRunInFlight, none_in_flight

problem = ""
try:
    from .front import Front, MpiCall, set_constants, uses_of
    from .in_flight import Mover, RunInFlight, forget_in_flight
    from .messages import FLOATING_POINT_ERRORS, Code, Mailboxes, Run, copied, mailboxes_size
    from .objects import BEGUN, ObjectCollectives, ObjectMessages, ObjectSlots
    from .pairs import Pairs, has_pairs
    from .peer_addresses import Areas, PeerAddresses
    from .slots import AREA_SIZE, SlotCode, Slots
    from .steps import Steps, has_loop
except ImportError as error:
    problem = f"it was not compiled when pycoll was installed, which takes a C compiler ({error})"
    RunInFlight, Mover, forget_in_flight = NoRunInFlight, NoMover, none_in_flight  # type: ignore[assignment,misc]


__all__ = [
    "AREA_SIZE",
    "BEGUN",
    "FLOATING_POINT_ERRORS",
    "MISSED",
    "Areas",
    "Code",
    "Front",
    "Mailboxes",
    "Mover",
    "MpiCall",
    "NoFront",
    "ObjectCollectives",
    "ObjectMessages",
    "ObjectSlots",
    "Pairs",
    "PeerAddresses",
    "Run",
    "RunInFlight",
    "SlotCode",
    "Slots",
    "Steps",
    "copied",
    "forget_in_flight",
    "has_loop",
    "has_pairs",
    "mailboxes_size",
    "problem",
    "set_constants",
    "uses_of",
]
