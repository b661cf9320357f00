"""Ranks in one process: `local` runs a function on several threads, each of which is a rank.

It is for notebooks, lessons and tests: nothing needs mpiexec, and a hang is an error that says who waits for whom.  The
reference executor (`pycoll.runtime.reference`) runs the rounds of each collective as they are written.  Messages are
items of queues in this process.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from .api.comm_collectives import BlockingMethods
from .api.comm_objects import ObjectMethods
from .arguments.mpi_arguments import read
from .base.numbers import check_positive
from .compiler.program import BLOCKING
from .core import NoFront
from .runtime.calls import Call
from .runtime.dispatch import check_root, prepare
from .runtime.executable import run_all
from .runtime.front import METHODS
from .runtime.objects import Objects
from .selection.choices import Choices, primitive_called
from .selection.select import CommFacts

ANY_SOURCE, ANY_TAG = MPI.ANY_SOURCE, MPI.ANY_TAG


def local(program: Callable[[LocalComm], Any], ranks: int = 4) -> list[Any]:
    """Run ``program(comm)`` on several ranks, which are threads of this process.

    Parameters
    ----------
    program : callable
        Called with the communicator of each rank.
    ranks : int, default 4
        The number of ranks.

    Returns
    -------
    list
        What the calls returned, in rank order.

    Raises
    ------
    RuntimeError
        If all ranks that have not ended wait for messages; the error names the messages.
    Exception
        If a rank raises an error, the others stop waiting, and this error is raised.

    Examples
    --------
    >>> import numpy as np, pycoll
    >>> pycoll.local(lambda comm: pycoll.allreduce(np.full(2, comm.rank), comm=comm, algorithm="ring").tolist())
    [[6, 6], [6, 6], [6, 6], [6, 6]]
    """
    check_positive("ranks", ranks, "number of ranks")
    queues = _Queues(ranks)
    results: list[Any] = [None] * ranks

    def run(rank: int) -> None:
        try:
            results[rank] = program(LocalComm(rank, queues))
        except BaseException as error:
            queues.stop(error)
        finally:
            queues.end(rank)

    threads = [threading.Thread(target=run, args=[rank], name=f"rank {rank}", daemon=True) for rank in range(ranks)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException as error:  # Ctrl-C
        queues.stop(error)
        raise
    if queues.error:
        raise queues.error
    return results


class _Letter(NamedTuple):
    """A message that has been sent."""

    source: int
    tag: int
    collective: bool
    content: bytes


class _Request:
    """A message that has been sent, or one that is to be received: then it has a `letter` when that has come."""

    def __init__(self, queues: _Queues, rank: int, source: int, tag: int, collective: bool, array: Any = None) -> None:
        self.queues, self.rank, self.source, self.tag = queues, rank, source, tag
        self.collective, self.letter, self._array = collective, None, array  # type: bool, _Letter | None, Any

    def fits(self, letter: _Letter) -> bool:
        """Whether it receives this message."""
        tagged = self.tag in (letter.tag, ANY_TAG) and self.source in (letter.source, ANY_SOURCE)
        return tagged and self.collective == letter.collective

    def Test(self) -> bool:
        """Whether it is complete."""
        return self.queues.came(self, False) and self._store()

    def Wait(self) -> bool:
        """Wait until it is complete."""
        return self.queues.came(self, True) and self._store()

    def _store(self) -> bool:
        array, self._array = self._array, None
        if array is not None:
            content = np.frombuffer(self.letter.content, np.uint8)  # type: ignore[union-attr]
            if content.nbytes > array.nbytes:
                raise ValueError(f"a message of {content.nbytes} bytes does not fit in {array.nbytes} bytes")
            array.reshape(-1).view(np.uint8)[: content.nbytes] = content
        return True


class _Stopped(BaseException):
    """Ends a rank that waits for one that has raised an error."""


class _Queues:
    """The messages of all ranks, which match as in MPI: in the order in which they are sent and receives begin."""

    def __init__(self, size: int) -> None:
        self.size, self.error = size, None  # type: int, BaseException | None
        self._letters: list[list[_Letter]] = [[] for _ in range(size)]  # by receiver, with no receive
        self._receives: list[list[_Request]] = [[] for _ in range(size)]  # without a letter
        self._changed = threading.Condition()
        self._running, self._waiting = set(range(size)), dict[int, str]()

    def send(self, to: int, letter: _Letter) -> None:
        """Deliver a message."""
        with self._changed:
            receives = self._receives[to]
            for number, request in enumerate(receives):
                if request.fits(letter):
                    receives.pop(number).letter = letter
                    self._waiting.pop(to, None)  # it will look
                    self._changed.notify_all()
                    return
            self._letters[to].append(letter)

    def receive(self, request: _Request) -> _Request:
        """Begin to receive a message."""
        with self._changed:
            letters = self._letters[request.rank]
            found = next((number for number, letter in enumerate(letters) if request.fits(letter)), None)
            if found is None:
                self._receives[request.rank].append(request)
            else:
                request.letter = letters.pop(found)
            return request

    def came(self, request: _Request, waits: bool) -> bool:
        """Whether a message has come; wait for it, if that is asked for."""
        with self._changed:
            while request.letter is None:
                if waits and self.error is None:
                    sender = "any rank" if request.source == ANY_SOURCE else f"rank {request.source}"
                    self._waiting[request.rank] = f"rank {request.rank} waits for a message of {sender}"
                    self._check()
                if self.error is not None:
                    raise _Stopped
                if not waits:
                    return False
                self._changed.wait()
            return True

    def end(self, rank: int) -> None:
        """A rank has ended."""
        with self._changed:
            self._running.discard(rank)
            self._check()

    def stop(self, error: BaseException) -> None:
        """Let all ranks end because of an error; the first one is kept."""
        with self._changed:
            if not isinstance(error, _Stopped):
                self.error = error if self.error is None else self.error
            self._changed.notify_all()

    def _check(self) -> None:
        """Stop all ranks if each one waits."""
        if self._running and self._waiting.keys() >= self._running and self.error is None:
            waiting = [self._waiting[rank] for rank in sorted(self._running)]
            self.stop(RuntimeError("; ".join(["all ranks wait", *waiting])))


class _Channel:
    """What `pycoll.runtime.dispatch` needs to know of a communicator, whose messages `comm` sends."""

    slots = tuned = mailboxes = topology = None
    front = NoFront()
    registers = near = False
    nonblocking = True  # so that nothing is left to MPI
    by_reference = True

    def __init__(self, comm: _QueuedMessages) -> None:
        self.comm, self.size, self.facts, self.choices = comm, comm.size, CommFacts((0,) * comm.size), Choices()

    def check_usable(self) -> None:
        """Do nothing: it is."""

    renew = check_usable

    def interrupted(self, what: str, error: BaseException) -> BaseException:
        """The error to raise if a collective ends early."""
        return error


class _QueuedMessages:
    """Messages of a rank with the others: those of the program, or those of collectives."""

    def __init__(self, rank: int, queues: _Queues, collective: bool) -> None:
        self.rank, self.size, self._queues, self._collective = rank, queues.size, queues, collective

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> _Request:
        """Send an array, which may be changed at once."""
        self._send(_array(buf).tobytes(), dest, tag)
        request = _Request(self._queues, self.rank, dest, tag, self._collective)
        request.letter = _Letter(self.rank, tag, self._collective, b"")
        return request

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> _Request:
        """Begin to receive an array, which has the data when the request is complete."""
        array = _array(buf)
        if not array.flags.c_contiguous or not array.flags.writeable:
            raise ValueError("buf: the array is read-only or not C-contiguous")
        return self._receive(source, tag, array)

    def _send(self, content: bytes, dest: int, tag: int) -> None:
        check_root(dest, self.size)
        self._queues.send(dest, _Letter(self.rank, tag, self._collective, content))

    def _receive(self, source: int, tag: int, array: Any = None) -> _Request:
        if source != ANY_SOURCE:
            check_root(source, self.size)
        return self._queues.receive(_Request(self._queues, self.rank, source, tag, self._collective, array))


class LocalComm(_QueuedMessages):
    """The communicator of a rank of `local`; only the thread of this rank may use it.

    It has the blocking collectives of `pycoll.Comm`, with ``algorithm=``.  Messages are as in mpi4py: arrays, lists of
    an array and its datatype, or objects.  The functions of pycoll take it as ``comm=``.
    """

    def __init__(self, rank: int, queues: _Queues) -> None:
        super().__init__(rank, queues, False)
        self._channel = _Channel(_QueuedMessages(rank, queues, True))
        self._front = self._channel.front
        self._objects = _Objects(self)

    def __repr__(self) -> str:
        return f"<LocalComm: rank {self.rank} of {self.size}>"

    def Get_rank(self) -> int:
        """The rank."""
        return self.rank

    def Get_size(self) -> int:
        """The number of ranks."""
        return self.size

    if TYPE_CHECKING:  # the methods of `pycoll.Comm`, which are assigned below

        def __getattr__(self, name: str) -> Any: ...

    def _run(
        self, number: int, sendbuf: Any, recvbuf: Any, op: Any, root: Any, algorithm: Any, recvcounts: Any = None
    ) -> None:
        name = primitive_called(METHODS[number])
        self.run_call(Call(name, self, sendbuf, recvbuf, op, root, algorithm, recvcounts, read))  # type: ignore[arg-type]

    def run_call(self, call: Call) -> Any:
        """Check the arguments of a collective, choose an algorithm, and run its rounds."""
        prepared = prepare(call, self._channel)  # type: ignore[arg-type]
        if prepared.native:
            raise ValueError("algorithm='native': ranks in one process do not use MPI")
        if delayed := run_all(prepared.body(prepared.executable)):
            raise delayed
        return prepared.buffers.result

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send an array."""
        self.Isend(buf, dest, tag)

    def Recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> None:
        """Receive an array."""
        self.Irecv(buf, source, tag).Wait()

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
    ) -> None:
        """Send one array, and receive another one."""
        self.Isend(sendbuf, dest, sendtag)
        self.Recv(recvbuf, source, recvtag)

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object."""
        self._send(pickle.dumps(obj), dest, tag)

    def recv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Any:
        """Receive an object; `buf` is ignored."""
        request = self._receive(source, tag)
        request.Wait()
        return pickle.loads(request.letter.content)  # type: ignore[union-attr]

    def sendrecv(
        self,
        sendobj: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
    ) -> Any:
        """Send one object, and receive another one."""
        self.send(sendobj, dest, sendtag)
        return self.recv(recvbuf, source, recvtag)


for _kind in BlockingMethods, ObjectMethods:  # whose methods call `_run` and `_objects`
    for _name, _method in vars(_kind).items():
        if not _name.startswith("_"):
            setattr(LocalComm, _name, _method)


class _Objects(Objects):
    """The collectives of objects between ranks in one process."""

    def __init__(self, comm: LocalComm) -> None:
        self._comm, self._channel = comm, comm._channel  # type: ignore[assignment]
        self._rank, self._size = comm.rank, comm.size

    def _check(self, root: Any = 0) -> None:
        check_root(root, self._size)

    def _run(self, name: str, send: Any, recv: Any, root: int, algorithm: str | None, op: Any = None) -> Any:
        return self._comm.run_call(Call(name, self._comm, send, recv, op, root, algorithm))  # type: ignore[attr-defined]

    def _move(self, name: str, send: Any, recv: Any, root: int, algorithm: str | None) -> None:
        call = Call(name, self._comm, send, recv, None, root, algorithm, None, read)
        self._comm.run_call(call)  # type: ignore[attr-defined]

    def _exchange(self, outgoing: list[list[np.ndarray]], incoming: list[list[np.ndarray]]) -> None:
        for to, arrays in enumerate(outgoing):
            for array in arrays if to != self._rank else ():
                self._channel.comm.Isend(array, to, BLOCKING)
        for source, arrays in enumerate(incoming):
            for array in arrays if source != self._rank else ():
                self._channel.comm.Irecv(array, source, BLOCKING).Wait()


def _array(buf: Any) -> np.ndarray:
    """The array of a buffer: an array, or a list of an array and its datatype."""
    array = buf
    if isinstance(buf, list | tuple) and len(buf) == 2 and isinstance(buf[1], MPI.Datatype):
        array = buf[0]
        if isinstance(array, np.ndarray) and buf[1].size != array.itemsize:
            raise TypeError(f"buf: a datatype of {buf[1].size} bytes does not fit elements of {array.itemsize} bytes")
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        raise TypeError(f"buf={buf!r} is neither an array of numbers nor a list of such an array and its datatype")
    return array
