"""A stage of a pipeline in the simulation of a training step: one of its ranks, whose times are those of the others.

A stage has a stream of computation, and channels for messages of the pipeline and for data parallelism.  Collectives of
tensor parallelism are part of the computation.  What the channels carry overlaps with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...schedule import pipeline
from ...schedule.pipeline import BackwardInput, BackwardWeights, Forward, MicrobatchWork, RecvTensor, SendTensor
from .groups import Groups
from .model import Layer

COMPUTING, TENSOR, PIPELINE, DATA = STREAMS = "computing", "tensor parallel", "pipeline", "data parallel"
OPTIMIZER = "optimizer"
BUCKET = 25 << 20  # bytes, as in `pycoll.parallel.DistributedDataParallel`


class Span(NamedTuple):
    """An activity of a stage, in seconds.  A collective has bytes, and the name of its primitive and algorithm."""

    stream: str
    name: str
    begin: float
    end: float
    nbytes: int | None = None


class StageMessage(NamedTuple):
    """The times at which a message of the pipeline leaves and arrives."""

    left: float
    arrived: float


Arrivals = dict[tuple[int, RecvTensor], StageMessage]  # by the receiving stage, and what it waits for


class How(NamedTuple):
    """How the ranks share a step.

    Parameters
    ----------
    micro_batches : int
        The number of micro-batches of a data-parallel rank in a step.
    schedule : str
        The schedule of the pipeline, one of `pycoll.schedule.pipeline.SCHEDULES`.
    chunks : int
        The number of chunks of layers on each stage.
    bucket : int
        The largest bucket of gradients in bytes; a larger layer has a bucket of its own.
    overlap : bool
        Whether gradients are averaged during the backward pass.
    """

    micro_batches: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    bucket: int = BUCKET
    overlap: bool = True


class Stage:
    """A stage; `chunks` has its layers, and `outputs` the bytes of the outputs of all chunks of the model.

    Attributes
    ----------
    spans : list of Span
        What it did.
    seconds : dict of str to float
        The time of each kind of work, and the time that the computation waited for each kind of communication.
    end : float
        The end of the step in seconds.
    """

    def __init__(
        self,
        number: int,
        chunks: Sequence[Sequence[Layer]],
        outputs: Sequence[int],
        groups: Groups,
        how: How,
        arrivals: Arrivals,
    ) -> None:
        self.number, self.outputs, self.groups, self.how, self.arrivals = number, outputs, groups, how, arrivals
        self.layers = [layer for chunk in chunks for layer in chunk]
        ends = [sum(map(len, chunks[: count + 1])) for count in range(len(chunks))]
        self.chunks = [range(end - len(chunk), end) for end, chunk in zip(ends, chunks)]  # indices of layers
        self.spans: list[Span] = []
        self.seconds = dict.fromkeys([*STREAMS, OPTIMIZER], 0.0)
        self.now = self.end = 0.0  # of the computation
        self.free = dict.fromkeys((PIPELINE, DATA), 0.0)  # the time until which a channel is busy
        self.sharded = groups.size("fsdp") > 1
        self.gathered: dict[int, tuple[int, float]] = {}  # in each of two buffers: a layer, and when it is there
        self.buckets = self._buckets()
        self.passes: Counter[int] = Counter()  # complete backward passes of each layer
        self.late: list[int] = []  # buckets to average after the backward passes

    def _buckets(self) -> dict[int, int]:
        """Return the bytes of each bucket, by the layer whose gradients are its last ones."""
        buckets: dict[int, int] = {}
        filled, last = 0, 0
        for index in reversed(range(len(self.layers))):
            nbytes = self._nbytes(index)
            if filled and filled + nbytes > self.how.bucket:
                buckets[last], filled = filled, 0
            filled, last = filled + nbytes, index
        return buckets | {last: filled}

    def _nbytes(self, index: int) -> int:
        """Return the bytes of the parameters of a layer on a rank."""
        layer = self.layers[index]
        return layer.nbytes // (self.groups.size("tp") if layer.tensor_allreduces else 1)

    def moves(self) -> Iterator[RecvTensor]:
        """Do all moves; before each receive, yield the message, and go on when it is in `arrivals`."""
        for move in pipeline.moves(
            self.how.schedule, self.number, self.groups.size("pp"), self.how.micro_batches, self.how.chunks
        ):
            if isinstance(move, RecvTensor):
                yield move
                message = self.arrivals[self.number, move]
                if message.arrived > self.now:
                    self.seconds[PIPELINE] += message.arrived - max(self.now, message.left)
                    self.now = message.arrived
            elif isinstance(move, SendTensor):
                self._send(move)
            else:
                self._work(move)

    def _send(self, move: SendTensor) -> None:
        """Send the output of a chunk, or to this chunk the gradient of its output."""
        at = move.chunk * self.groups.size("pp") + move.to  # the receiving chunk in the model
        nbytes = self.outputs[at if move.backward else at - 1]
        what = f"{'gradient' if move.backward else 'activation'} {move.batch} to stage {move.to}"
        sent = self._occupy(PIPELINE, "pp", "message", nbytes, what)
        self.arrivals[move.to, RecvTensor(self.number, move.batch, move.chunk, move.backward)] = sent

    def _occupy(self, channel: str, axis: str, primitive: str, nbytes: int, what: str = "") -> StageMessage:
        """Let a channel carry something, after what came before."""
        found = self.groups.collective(axis, primitive, nbytes)
        begin = max(self.now, self.free[channel])
        self.free[channel] = end = begin + found.seconds
        if end > begin:
            self.spans.append(Span(channel, what or str(found), begin, end, nbytes))
        return StageMessage(begin, end)

    def _work(self, move: MicrobatchWork) -> None:
        """Compute a pass through a chunk, layer by layer."""
        forward, weights = isinstance(move, Forward), isinstance(move, BackwardWeights)
        part = 0.5 if weights or isinstance(move, BackwardInput) else 1.0
        indices = self.chunks[move.chunk] if forward else self.chunks[move.chunk][::-1]
        for index, following in zip(indices, [*indices[1:], None]):
            layer = self.layers[index]
            if self.sharded and not weights:
                self._gather(index, following)
            seconds = layer.forward if forward else part * layer.backward
            what = f"{'forward' if forward else 'backward'} {move.batch}: {layer.name}"
            self._compute(layer, seconds, 0 if weights else layer.tensor_allreduces, what)
            if not forward and not isinstance(move, BackwardInput):
                self._gradients_of(index)

    def _compute(self, layer: Layer, seconds: float, allreduces: int, what: str) -> None:
        """Compute a layer, with all-reduces after equal parts of the computation."""
        tensor = self.groups.size("tp")
        parts = allreduces if tensor > 1 and allreduces else 1
        share = seconds / parts / (tensor if layer.tensor_allreduces else 1)
        reducing = self.groups.collective("tp", "allreduce", layer.activation)
        for _ in range(parts):
            self._spend(COMPUTING, what, share)
            if allreduces and reducing.seconds:
                self._spend(TENSOR, str(reducing), reducing.seconds, layer.activation)

    def _spend(self, kind: str, what: str, seconds: float, nbytes: int | None = None) -> None:
        begin, self.now = self.now, self.now + seconds
        self.seconds[kind] += seconds
        self.spans.append(Span(kind, what, begin, self.now, nbytes))

    def _gather(self, index: int, following: int | None) -> None:
        """Wait for the parameters of a layer, and start to gather those of the following layer."""
        ready = self._gathering(index)
        if ready > self.now:
            self.seconds[DATA] += ready - self.now
            self.now = ready
        if following is not None:
            self._gathering(following)

    def _gathering(self, index: int) -> float:
        """Return when a layer is gathered; start to gather it, unless a buffer holds it."""
        held, ready = self.gathered.get(index % 2, (None, 0.0))
        if held != index:
            ready = self._occupy(DATA, "fsdp", "allgather", self._nbytes(index)).arrived
            self.gathered[index % 2] = index, ready
        return ready

    def _gradients_of(self, index: int) -> None:
        """Start to average gradients after the backward pass of a layer."""
        self.passes[index] += 1
        if self.sharded:
            self._occupy(DATA, "fsdp", "reduce_scatter", self._nbytes(index))
        elif index in self.buckets and self.passes[index] == self.how.micro_batches:
            if self.how.overlap:
                self._occupy(DATA, "dp", "allreduce", self.buckets[index])
            else:
                self.late.append(self.buckets[index])

    def finish(self, optimizer: float) -> None:
        """Average the other buckets, and run the optimizer."""
        for nbytes in self.late:
            self._occupy(DATA, "dp", "allreduce", nbytes)
        ready = max(self.now, self.free[DATA])
        self.seconds[DATA] += ready - self.now
        self.now = ready
        if optimizer:
            self._spend(OPTIMIZER, OPTIMIZER, optimizer)
        self.end = self.now
