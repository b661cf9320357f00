"""Plans for buffers in GPU memory that other ranks may open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..arguments.memory import address, overlap
from .executable import Executable, freed_at_its_end, run_in_turn
from .interruptions import interruptions_delayed
from .plan import Plan
from .sharing_device import DeviceSharing


@dataclass(kw_only=True)
class DevicePlan(Plan):
    """A plan for calls with buffers in GPU memory that other ranks may open."""

    binds = True

    sharing: DeviceSharing

    @classmethod
    def around(cls, plan: Plan, sharing: DeviceSharing) -> DevicePlan:
        """A plan for the same calls as `plan`."""
        return cls(**plan.common(), sharing=sharing)

    def run(self, send: Any, recv: Any) -> bool:
        """Run on these buffers; return False if they need a full check."""
        places = self._places(send, recv)
        if places is None:
            return False
        with interruptions_delayed():  # programs are bound between two synchronizations
            run_in_turn(self.sharing.parts(*places, None, lambda: [self._by_messages(send, recv)]), self._broken)
        return True

    def _places(self, send: Any, recv: Any) -> tuple[int, int] | None:
        """The addresses of the buffers, or 0; None if they need a full check."""
        arrays = [array for array, used in ((send, self.reads_send), (recv, self.uses_recv)) if used]
        if not all(map(self._is_usual, arrays)):
            return None
        places = self.addresses(send, recv)
        if len(arrays) == 2 and overlap(places[0], send.nbytes, places[1], recv.nbytes):
            return None
        return places

    def _is_usual(self, array: Any) -> bool:
        """Whether an array is contiguous, aligned, and on the same GPU as in the first call of this kind."""
        memory = self.sharing.memory
        on_gpu = memory is not None and array.device.id == memory.device
        return on_gpu and array.flags.c_contiguous and address(array) % self.like.dtype.alignment == 0

    def _by_messages(self, send: Any, recv: Any) -> Executable:
        return self.channel.bind(self.program, self.buffers(send, recv), self.operation)

    def _broken(self, error: BaseException, part: Executable) -> None:
        """Report that the collective ended early in this part."""
        self.running, part.failed = part, True

    def parts(self, send: Any, recv: Any) -> Iterator[Executable] | None:
        """The parts of a task on these buffers; None if they need a full check."""
        if self._places(send, recv) is None:
            return None
        self.like.memory.follow()  # now, because other parts may run in another thread
        return self._parts(send, recv, self.channel.next_tag())

    def _parts(self, send: Any, recv: Any, tag: int) -> Iterator[Executable]:
        yield from self.sharing.parts(*self.addresses(send, recv), tag, lambda: [self._message(send, recv, tag)])

    def _message(self, send: Any, recv: Any, tag: int) -> Executable:
        return freed_at_its_end(self.channel.bind(self.program, self.buffers(send, recv), self.operation, tag))

    def keep(self, executable: Executable, places: tuple[int, int]) -> None:
        """Do nothing: the channel keeps the executables."""

    def forget(self, key: Any) -> None:
        """Do nothing: the channel keeps the executables."""
