"""Pipeline parallelism: each rank has some layers, and micro-batches pass through the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.trace import phase

from ..arguments.device_arrays import cupy
from ..base import settings
from ..base.numbers import check_integer
from ..runtime.progress import tasks, until
from ..schedule import pipeline
from ..schedule.pipeline import Backward, BackwardInput, BackwardWeights, Forward, RecvTensor, SendTensor
from .agreement import check_same_options, together
from .driver import own_communicator, pending, wait_for
from .flat import named_dtype

Array = Any
Loss = Callable[[Array, Array], tuple[float, Array]]
AHEAD = 4  # moves whose messages are awaited in advance
PIECE = 32 << 10  # bytes; MPI sends short messages at once, but long ones only while the sender calls it


class Pipeline:
    """Run the forward and backward passes of a model whose layers are divided over ranks.

    All ranks of `comm` create the pipeline together and call its methods together.  Rank s of p has the chunks
    s, s + p, s + 2 * p, ... of the model.

    Parameters
    ----------
    chunks : sequence of objects
        The chunks of this rank, in the order of the model.  ``forward(x)`` returns the output and what the backward
        pass needs.  ``backward(dy, saved)`` keeps the gradients of weights and returns the gradient of x.
    loss : callable
        ``loss(y, targets)`` returns the mean loss of a micro-batch and its gradient, with the shape of y.  It is called
        on the last rank.
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, COMM_WORLD by default.  The pipeline uses a duplicate of it.
    schedule : str, default "1f1b"
        One of "gpipe", "1f1b", "interleaved", which has several chunks on each rank, and "zb-h1".  For "zb-h1", a chunk
        has ``backward_input(dy, saved)``, which returns the gradient of x, and a function without arguments that
        computes the gradients of weights.
    micro_batches : int, default 1
        The number of parts of equal size that a batch is divided into.

    Raises
    ------
    TypeError
        If a chunk has no `backward_input` and the schedule needs it.
    ValueError
        If the schedule is unknown, or does not fit the numbers of ranks, chunks and micro-batches.

    Notes
    -----
    Sent by rank s in a step: ((v - (s == p - 1)) + (v - (s == 0))) * (p > 1) * Z, for activations and gradients.
    Z is the size of the activation of a whole batch in bytes, and v the number of chunks on each rank.  At the
    beginning of each step, the ranks check their arguments together.  The first activation of a step that arrives at a
    chunk is announced by a message with its shape, so batches may have different shapes.  Activations are NumPy arrays,
    and a gradient has the dtype of its activation.

    The schedules and their sources are in `pycoll.schedule.pipeline`; ``python -m pycoll.draw pipeline`` draws them.
    """

    def __init__(
        self,
        chunks: Sequence[Any],
        loss: Loss,
        *,
        comm: MPI.Comm | None = None,
        schedule: str = "1f1b",
        micro_batches: int = 1,
    ) -> None:
        check_integer("micro_batches", micro_batches, "number of micro-batches")
        self.chunks, self.loss, self.micro_batches = list(chunks), loss, micro_batches
        self._error: BaseException | None = None
        with own_communicator(comm) as self.comm:
            check_same_options(self.comm, schedule=schedule, micro_batches=micro_batches, chunks=len(self.chunks))
            given = schedule, self.comm.size, micro_batches, len(self.chunks)
            pipeline.check(*given)
            self._moves = list(pipeline.moves(schedule, self.comm.rank, *given[1:]))
            split = any(isinstance(move, BackwardInput) for move in self._moves)
            for number, chunk in enumerate(self.chunks):
                if split and not hasattr(chunk, "backward_input"):
                    raise TypeError(f"chunks[{number}] has no method backward_input, which {schedule!r} needs")

    def step(self, inputs: Array, targets: Array) -> float:
        """Run all forward and backward passes of a batch.

        Parameters
        ----------
        inputs : array
            The batch, whose first axis is divided into micro-batches.  Only the first rank uses it; other ranks may
            pass None.
        targets : array
            What the loss compares with.  Only the last rank uses it.

        Returns
        -------
        float
            The mean loss, on all ranks.

        Raises
        ------
        ValueError
            If the length of the first axis is not a multiple of the number of micro-batches; then, other ranks raise
            RuntimeError.  Also if micro-batches have outputs of different shapes, or if the gradient of an activation
            has another shape or dtype than this.
        TypeError
            If the batch has no first axis; then, other ranks raise RuntimeError.
        RuntimeError
            If an earlier step ended with an error of the passes on this rank.
        """
        if self._error is not None:  # other messages of that step may still arrive
            raise RuntimeError(f"step: an earlier step ended early on this rank, with {self._error!r}")
        with together(self.comm, "Pipeline.step", "divide its batch"):
            run = _Step(self, *self._divided(inputs, targets))
        pending.add(run.messages)
        try:
            for number, move in enumerate(self._moves):
                run.post(self._moves[number : number + AHEAD])
                run.do(move)
            run.finish()
        except BaseException as error:
            self._error = error
            raise
        pending.discard(run.messages)
        return float(pycoll.allreduce(np.array([run.total]), comm=self.comm)[0])

    def _divided(self, inputs: Array, targets: Array) -> Iterator[Sequence[Array]]:
        """Yield the micro-batches of inputs and of targets, if this rank uses them."""
        for name, batch, user in ("inputs", inputs, 0), ("targets", targets, self.comm.size - 1):
            if self.comm.rank != user:
                yield ()
                continue
            if not np.ndim(batch):
                raise TypeError(f"{name} must be an array with at least one axis, not {batch!r}")
            if len(batch) % self.micro_batches:
                raise ValueError(
                    f"{name} of length {len(batch)} cannot be divided into {self.micro_batches} micro-batches of equal "
                    "size"
                )
            yield np.split(batch, self.micro_batches)

    def free(self) -> None:
        """Free the communicator.  All ranks call this together."""
        if self.comm != MPI.COMM_NULL:
            self.comm.Free()


class _Shape(NamedTuple):
    """What a receiver knows of an array before it comes."""

    lengths: tuple[int, ...]
    dtype: np.dtype
    on_gpu: bool

    @classmethod
    def of(cls, array: Array) -> _Shape:
        return cls(array.shape, array.dtype, not isinstance(array, np.ndarray))

    def __str__(self) -> str:
        return f"{self.lengths} and dtype {self.dtype}"

    def empty(self) -> Array:
        return (cupy() if self.on_gpu else np).empty(self.lengths, self.dtype)


class _StageMessages:
    """The messages of one step in flight."""

    def __init__(self) -> None:
        self.posted: dict[RecvTensor, tuple[Array, list[MPI.Request]]] = {}
        self.sends: list[tuple[SendTensor, MPI.Request]] = []


class _Step:
    """The moves of one step."""

    def __init__(self, owner: Pipeline, inputs: Sequence[Array], targets: Sequence[Array]) -> None:
        self.owner, self.inputs, self.targets = owner, inputs, targets
        self.name = f"Pipeline.step on rank {owner.comm.rank} of {owner.comm.size}"
        self.total = 0.0
        self.shapes: dict[int, _Shape] = {}  # of the inputs of chunks
        self.sent_shapes: dict[int, _Shape] = {}  # of the inputs of chunks of other ranks
        self.messages = _StageMessages()
        # by micro-batch and chunk
        self.forward: dict[tuple[int, int], Array] = {}  # inputs and outputs of forward passes
        self.backward: dict[tuple[int, int], Array] = {}  # inputs and outputs of backward passes
        self.saved: dict[tuple[int, int], Any] = {}
        self.outputs: dict[tuple[int, int], _Shape] = {}
        self.later: dict[tuple[int, int], Callable[[], None]] = {}

    def post(self, moves: Sequence[Any]) -> None:
        """Start to receive the next messages, until one whose shape is not known."""
        for move in moves:
            if isinstance(move, RecvTensor) and move not in self.messages.posted:
                at = move.batch, move.chunk
                shape = self.outputs.get(at) if move.backward else self.shapes.get(move.chunk)
                if shape is None:
                    return
                array = shape.empty()
                tag, comm = _tag(move), self.owner.comm
                requests = [pycoll.irecv(each, move.source, tag, comm=comm) for each in _pieces(array)]
                self.messages.posted[move] = array, requests

    def do(self, move: Any) -> None:
        """Do one move."""
        at = move.batch, move.chunk
        with phase(f"{type(move).__name__} of micro-batch {move.batch}"):
            match move:
                case RecvTensor():
                    self._receive(move, at)
                case SendTensor():
                    self._send(move)
                case Forward():
                    self._forward(move, at)
                case Backward():
                    self._arrived(at, self._chunk(move).backward(self.backward.pop(at), self.saved.pop(at)))
                case BackwardInput():
                    found, self.later[at] = self._chunk(move).backward_input(self.backward.pop(at), self.saved.pop(at))
                    self._arrived(at, found)
                case BackwardWeights():
                    self.later.pop(at)()

    def _chunk(self, move: Any) -> Any:
        return self.owner.chunks[move.chunk]

    def _arrived(self, at: tuple[int, int], gradient: Array) -> None:
        """Keep the gradient of an input, unless it is that of the whole model."""
        if self.owner.comm.rank or at[1]:
            self.backward[at] = gradient

    def _receive(self, move: RecvTensor, at: tuple[int, int]) -> None:
        if move not in self.messages.posted:
            self._receive_shape(move)
            self.post([move])
        array, requests = self.messages.posted[move]
        self._wait(requests, move)
        del self.messages.posted[move]
        (self.backward if move.backward else self.forward)[at] = array

    def _receive_shape(self, move: RecvTensor) -> None:
        comm = self.owner.comm
        if tasks or settings.TIMEOUT:
            until(partial(comm.iprobe, move.source, _tag(move)), self.name, partial(_awaited, move))
        lengths, dtype, on_gpu = comm.recv(None, move.source, _tag(move))
        self.shapes[move.chunk] = _Shape(lengths, named_dtype(dtype), on_gpu)

    def _wait(self, requests: Sequence[MPI.Request], move: SendTensor | RecvTensor) -> None:
        wait_for(requests, self.name, partial(_awaited, move))

    def _send(self, move: SendTensor) -> None:
        position = move.chunk * self.owner.comm.size + move.to  # of the receiving chunk in the model
        own = move.batch, (position + (1 if move.backward else -1)) // self.owner.comm.size
        array = (self.backward if move.backward else self.forward).pop(own)
        array = array if array.flags.c_contiguous else array.copy()
        if move.backward:
            self._check_gradient(own, array)
        else:
            self._send_shape(move, array)
        self.messages.sends = [(sent, request) for sent, request in self.messages.sends if not request.Test()]
        tag, comm = _tag(move), self.owner.comm
        self.messages.sends += [(move, pycoll.isend(each, move.to, tag, comm=comm)) for each in _pieces(array)]

    def _send_shape(self, move: SendTensor, array: Array) -> None:
        """Send the shape before the first message of the step; check that it is the same in later ones."""
        shape, sent = _Shape.of(array), self.sent_shapes
        if move.chunk not in sent:
            sent[move.chunk] = shape
            described = shape.lengths, str(shape.dtype), shape.on_gpu
            self.messages.sends.append((move, self.owner.comm.isend(described, move.to, _tag(move))))
        elif sent[move.chunk] != shape:
            raise ValueError(f"the output of micro-batch {move.batch} has shape {shape}, not {sent[move.chunk]}")

    def _check_gradient(self, at: tuple[int, int], gradient: Array) -> None:
        """Check that the gradient of an input has the shape and the dtype that the sender of this input expects."""
        batch, chunk = at
        wanted = self.shapes[chunk]
        if gradient.shape != wanted.lengths or gradient.dtype != wanted.dtype:
            raise ValueError(
                f"chunks[{chunk}]: the gradient of micro-batch {batch} has shape {_Shape.of(gradient)}, but its "
                f"activation has {wanted}"
            )

    def _forward(self, move: Forward, at: tuple[int, int]) -> None:
        x = self.forward.pop(at) if at in self.forward else self.inputs[move.batch]
        y, self.saved[at] = self._chunk(move).forward(x)
        self.outputs[at] = _Shape.of(y)
        if not self.last(move.chunk):
            self.forward[at] = y
            return
        value, gradient = self.owner.loss(y, self.targets[move.batch])
        self.total += value / self.owner.micro_batches
        self.backward[at] = gradient / self.owner.micro_batches

    def last(self, chunk: int) -> bool:
        """Whether a chunk of this rank is the last of the model."""
        return self.owner.comm.rank == self.owner.comm.size - 1 and chunk == len(self.owner.chunks) - 1

    def finish(self) -> None:
        """Wait until everything is sent."""
        for move, request in self.messages.sends:
            self._wait([request], move)


def _awaited(move: SendTensor | RecvTensor) -> str:
    """What the messages of a move wait for, in words."""
    array = f"{'gradient' if move.backward else 'activation'} of micro-batch {move.batch}"
    if isinstance(move, SendTensor):
        return f"it waits for rank {move.to} to receive the {array} for its chunks[{move.chunk}]"
    return f"it waits for rank {move.source} to send the {array} for chunks[{move.chunk}]"


def _tag(move: SendTensor | RecvTensor) -> int:
    """The tag of messages to a chunk, in one direction; those of micro-batches come in order."""
    return 2 * move.chunk + move.backward


def _pieces(array: Array) -> list[Array]:
    flat, length = array.reshape(-1), max(1, PIECE // array.itemsize)
    return [flat[start : start + length] for start in range(0, len(flat), length)]
