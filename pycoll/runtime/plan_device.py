"""Plans for buffers in GPU memory that other ranks may open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from ..arguments.memory import address, overlap
from .executable import Executable, run_in_turn
from .interruptions import interruptions_delayed
from .plan import Plan
from .sharing_device import DeviceSharing


@dataclass(kw_only=True)
class DevicePlan(Plan):
    """A plan for calls with buffers in GPU memory that other ranks may open."""

    sharing: DeviceSharing

    @classmethod
    def around(cls, plan: Plan, sharing: DeviceSharing) -> DevicePlan:
        """A plan for the same calls as `plan`."""
        return cls(**{one.name: getattr(plan, one.name) for one in fields(Plan)}, sharing=sharing)

    def run(self, send: Any, recv: Any) -> bool:
        """Run on these buffers; return False if they need a full check."""
        arrays = [array for array, used in ((send, self.gives), (recv, self.gets)) if used]
        if not all(map(self._is_usual, arrays)):
            return False
        places = address(send) if self.gives else 0, address(recv) if self.gets else 0
        if len(arrays) == 2 and overlap(places[0], send.nbytes, places[1], recv.nbytes):
            return False
        with interruptions_delayed():  # programs are bound between two synchronizations
            run_in_turn(self.sharing.parts(*places, None, lambda: [self._by_messages(send, recv)]), self._broken)
        return True

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

    def parts(self, send: Any, recv: Any) -> None:
        """None: collectives in flight need a full check."""

    def _parts(self, send: Any, recv: Any, tag: int) -> Iterator[Executable]:
        raise NotImplementedError

    def keep(self, executable: Executable, places: tuple[int, int]) -> None:
        """Do nothing: the channel keeps the executables."""

    def forget(self, key: Any) -> None:
        """Do nothing: the channel keeps the executables."""
