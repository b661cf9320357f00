"""In-memory replicas of shards: the next rank has copies of the state of each rank, while training goes on.

The state of a rank that fails is then on its neighbor.  Compare Wang et al., "GEMINI: Fast Failure Recovery in
Distributed Training with In-Memory Checkpoints", SOSP 2023.  https://doi.org/10.1145/3600006.3613145
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from mpi4py import MPI

import pycoll

from ...runtime.progress import until
from ..driver import own_communicator, pending, revoke
from ..ps.loans import Loans
from .copies import Copier, CopyFrame, Label, StateCopy, mark, step_of

OWN = 3  # copies of its own that a rank keeps, because others may be a step behind, and the newest may be incomplete


class NeighborCopies:
    """Copies of the state of this rank for the next of the `owners`, and those of the previous one.

    All ranks of `comm` create it together.  `copier` is None on ranks without a part of the state.

    Inside a host, the copies are in registered memory, where the neighbor finds them even if this rank has died.
    Between hosts, they are sent.  With `lockstep`, all ranks take copies at the same steps, and each waits until the
    copy before has arrived; otherwise an owner leaves out a copy rather than wait.

    Other owners may be a step behind a copy that has just arrived.  Then the copy before it is needed as well: it is
    kept until this rank takes its own copy after a later step, for which all others must have done the one before.
    """

    def __init__(self, comm: MPI.Comm, copier: Copier | None, every: int, lockstep: bool, build: int) -> None:
        self._copier, self._every, self._lockstep, self._build = copier, every, lockstep, build
        self._last = -1  # the step of the last copy of this rank, or that it expects
        with own_communicator(comm) as self._comm:
            nbytes = copier.frame.nbytes if copier else 0
            self._own = list(pycoll.empty((OWN, nbytes), np.uint8, comm=self._comm)) if nbytes else []
            if not nbytes:
                pycoll.empty(0, comm=self._comm)
            for memory in self._own:
                mark(memory, -1)
            self._takes = [(memory, copier.into(memory)) for memory in self._own if copier]
            self._loans = Loans(self._comm)
            about = (copier.frame, self._loans.positions(self._own)) if copier else None
            everyone = MPI.Intracomm(self._comm).allgather(about)
        copied: dict[int, tuple[CopyFrame, list[int]]] = {rank: one for rank, one in enumerate(everyone) if one}
        hosts, me = pycoll.attach(self._comm).facts.hosts, comm.rank
        self._owners = tuple(copied)
        receivers = neighbors(self._owners, hosts)
        self._to = receivers.get(me, me)
        self._from = next((owner for owner, to in receivers.items() if to == me != owner), me)
        self._sends = self._to != me and (hosts[self._to] != hosts[me] or min(copied[me][1]) < 0)
        self._frame: CopyFrame | None = None  # of the copies of the other rank
        self._theirs: list[np.ndarray] = []  # these copies; if they are sent, the newest one is the last
        self._arriving: np.ndarray | None = None  # memory for the next message
        self._receives = False
        self._receive: MPI.Request | None = None
        self._send: MPI.Request | None = None
        self._keeps = lockstep and len(self._owners) > 1  # the copy before the newest one
        if self._from != me:
            self._frame, positions = copied[self._from]
            memory = np.zeros(self._frame.nbytes, np.uint8)
            mark(memory, -1)
            if hosts[self._from] == hosts[me]:
                self._theirs = self._loans.borrowed(self._from, positions, [memory] * OWN) or []
            if not self._theirs:
                self._theirs, self._receives = [memory, memory.copy()], True
                if not self._keeps:
                    self._expect()

    def _expect(self) -> None:
        """Post the receive of the next copy, into the memory of the oldest one."""
        if self._receives and self._receive is None:
            self._arriving = self._theirs.pop(0)
            self._receive = pycoll.irecv(self._arriving, self._from, comm=self._comm)
            pending.add(self)

    def take(self, step: int) -> None:
        """Take a copy after `step` if it is time."""
        if self._last >= 0 and step - self._last < self._every:
            self.progress()
            return
        if self._lockstep:
            self.wait()
        elif not self.progress():
            return
        self._expect()
        self._last = step
        if self._copier:
            memory, copy_state = min(self._takes, key=lambda one: step_of(one[0]))
            copy_state(step)
            if self._sends:
                self._send = pycoll.isend(memory, self._to, comm=self._comm)
                pending.add(self)
        self.progress()

    def progress(self) -> bool:
        """Advance the messages; return whether the last copy of this rank has been sent."""
        if self._receive and self._receive.Test():
            assert self._arriving is not None
            self._theirs.append(self._arriving)
            self._receive = None
            if not self._keeps:
                self._expect()
        if self._send and self._send.Test():
            self._send = None
        if self._send is None and self._receive is None:
            pending.discard(self)
        return self._send is None

    def wait(self) -> None:
        """Wait until the last copies have been sent and received."""

        def done() -> bool:
            return self.progress() and (not self._receives or step_of(self._theirs[-1]) >= self._last)

        until(done, f"copying the state on rank {self._comm.rank}", lambda: f"rank {self._to} or {self._from} is late")

    def copies(self) -> Iterator[StateCopy]:
        """Yield the copies on this rank: its own, and those of the other rank."""
        with contextlib.suppress(MPI.Exception):
            self.progress()  # the newest one may have arrived since
        for owner, memories in ((self._comm.rank, self._own), (self._from, self._theirs)):
            frame = self._copier.frame if self._copier and owner == self._comm.rank else self._frame
            for memory in memories:
                if frame and (step := step_of(memory)) >= 0:
                    yield StateCopy(Label(self._build, step, owner, self._owners), frame, memory)

    def finish(self) -> None:
        """Wait for all messages; all ranks call this together after the last step."""
        until(self.progress, f"copying the state on rank {self._comm.rank}")
        met = MPI.Intracomm(self._comm).Ibarrier()
        until(lambda: self.progress() and met.Test(), "the end of training")

    def free(self) -> None:
        """Free the communicator, after `finish`."""
        if self._receive:
            self._receive.Cancel()
            self._receive.Wait()
        pending.discard(self)
        self._comm.Free()

    def revoke(self) -> None:
        """Make all ranks leave their calls, because a rank has failed."""
        revoke(self._comm)
        pending.discard(self)


def neighbors(owners: Sequence[int], hosts: Sequence[int]) -> dict[int, int]:
    """Return the rank that has the copies of each owner: the next one, on another host if possible.

    A single owner has the next rank of the communicator as its neighbor, even if that is no owner.
    """
    if len(owners) == 1:
        return {owners[0]: (owners[0] + 1) % len(hosts)}
    seen: Counter[int] = Counter()
    turns = {}  # hosts take turns in the order
    for owner in owners:
        turns[owner] = seen[hosts[owner]], owner
        seen[hosts[owner]] += 1
    order = sorted(owners, key=turns.__getitem__)
    return dict(zip(order, [*order[1:], *order[:1]]))
