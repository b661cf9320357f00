"""Trainers: one class for each driver, which runs the training steps with it."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from mpi4py import MPI

from pycoll import parallel
from pycoll.parallel import SGD, Adam, AdamW, Cast, Optimizer, Quantize, TopK

from .data import Data
from .model import Arrays, Perceptron

OPTIMIZERS = {"sgd": SGD, "adam": Adam, "adamw": AdamW}
HOOKS = {"fp16": partial(Cast, "float16"), "bf16": partial(Cast, "bfloat16"), "int8": Quantize, "topk": TopK}


class Trainer:
    """Base class of all trainers; by itself, it trains on one rank without a driver.

    Attributes
    ----------
    share
        The number of this rank among the ranks that compute, and the number of these ranks; None if it does not
        compute.
    talking
        The time spent in calls of the driver, in seconds.
    """

    driver: (
        parallel.DistributedDataParallel
        | parallel.FullyShardedDataParallel
        | parallel.ParameterServer
        | parallel.LocalSGD
        | None
    ) = None
    optimizer: Optimizer | None

    def __init__(self, model: Perceptron, options: argparse.Namespace, comm: MPI.Intracomm) -> None:
        self.model, self.options, self.comm = model, options, comm
        self.start = model.initial(options.seed, np.dtype(options.dtype))
        self.share: tuple[int, int] | None = (comm.rank, comm.size)
        self.talking = 0.0
        self.prepare()

    def prepare(self) -> None:
        """Create the driver and the optimizer."""
        self.optimizer = self.make_optimizer(self.start)

    def make_optimizer(self, parameters: Arrays) -> Optimizer:
        """Create the optimizer that the options select."""
        options = self.options
        more = {"momentum": options.momentum} if options.optimizer == "sgd" else {}
        rate = options.rate / (self.workers if options.driver == "ps" and options.mode == "async" else 1)
        return OPTIMIZERS[options.optimizer](parameters, lr=rate, weight_decay=options.weight_decay, **more)

    @property
    def workers(self) -> int:
        """The number of ranks that compute gradients."""
        return self.comm.size

    @contextlib.contextmanager
    def communicating(self) -> Iterator[None]:
        """Add the time in the ``with`` block to `talking`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.talking += time.perf_counter() - start

    def micro_batches(self, batch: Data) -> list[Data]:
        """Return the part of a global batch for this rank, cut into micro-batches for accumulation."""
        assert self.share
        mine = np.arange(len(batch.digits))[self.share[0] :: self.share[1]]
        return [batch.part(indices) for indices in np.array_split(mine, self.options.accumulate)]

    def step(self, batch: Data) -> float:
        """Train on a global batch; return the contribution of this rank to the mean loss of the batch."""
        scale = self.workers / len(batch.digits)  # drivers average over ranks; the result is the mean over the batch
        return sum(self.learn(micro, scale) for micro in self.update(self.micro_batches(batch))) / len(batch.digits)

    def update(self, micro_batches: list[Data]) -> Iterator[Data]:
        """Yield the micro-batches to compute gradients for, and then update the parameters."""
        self.gradients: Arrays = {}
        yield from micro_batches
        self.apply()

    def apply(self) -> None:
        """Update the parameters with the gradients."""
        assert self.optimizer
        if self.options.clip:
            parallel.clip_by_global_norm(self.gradients, self.options.clip)
        self.optimizer.step(self.gradients)

    def learn(self, batch: Data, scale: float) -> float:
        """Run the forward and the backward pass; return the sum of the losses."""
        inputs = []
        values = batch.images
        for layer in self.model.layers:
            inputs.append(values)
            with self.forward(layer) as parameters:
                values = self.model.forward(layer, parameters, values)
        loss, error = self.model.loss(values, batch.digits)
        error *= scale
        for layer in reversed(self.model.layers):
            with self.backward(layer) as parameters:
                for name, gradient in self.model.backward(layer, parameters, inputs[layer], error):
                    self.announce(name, gradient)
                error = self.model.through(layer, parameters, inputs[layer], error)
        return loss

    def forward(self, layer: int) -> contextlib.AbstractContextManager[Arrays]:
        """Return a context manager with the parameters for the forward pass of a layer."""
        return contextlib.nullcontext(self.start)

    def backward(self, layer: int) -> contextlib.AbstractContextManager[Arrays]:
        """Return a context manager with the parameters for the backward pass of a layer."""
        return contextlib.nullcontext(self.start)

    def announce(self, name: str, gradient: np.ndarray) -> None:
        """Pass a new gradient on to the driver."""
        if name in self.gradients:
            self.gradients[name] += gradient
        else:
            self.gradients[name] = gradient

    def serve(self) -> None:
        """Do the work of a rank that does not compute, for one epoch."""

    def finish(self) -> None:
        """Finish an epoch; all ranks call it."""

    def parameters(self) -> Arrays:
        """Return all parameters; all ranks call it."""
        return self.start

    def state_bytes(self) -> int:
        """Return the bytes of parameters, gradients and optimizer state on this rank."""
        assert self.optimizer
        return 2 * _nbytes(self.start) + sum(map(_nbytes, self.optimizer.state.values()))

    def predicted(self) -> float:
        """Return the predicted number of bytes that this rank sends in a step."""
        return 0.0

    def free(self) -> None:
        """Free the driver."""
        if self.driver:
            self.driver.free()

    @property
    def nbytes(self) -> int:
        """The bytes of all parameters, Z in the formulas."""
        return _nbytes(self.start)


def _nbytes(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays.values())


class WithDDP(Trainer):
    """Trains with DistributedDataParallel."""

    def prepare(self) -> None:
        options = self.options
        hook = {"hook": HOOKS[options.compress]()} if options.compress else {}
        self.driver = self.ddp = parallel.DistributedDataParallel(
            self.start, comm=self.comm, bucket_bytes=int(options.bucket_mb * (1 << 20)), **hook
        )
        self.optimizer = self.make_optimizer(self.start)
        self.names = list(reversed(self.start))

    def update(self, micro_batches: list[Data]) -> Iterator[Data]:
        self.gradients = {}
        *first, last = micro_batches
        with self.ddp.no_sync():
            yield from first
        yield last
        with self.communicating():
            for name, gradient in self.gradients.items():
                self.ddp.ready(name, gradient)
            self.gradients = self.ddp.synchronize()
        self.apply()

    def announce(self, name: str, gradient: np.ndarray) -> None:
        """Pass a new gradient on to the driver; without overlap, keep it until all gradients are computed."""
        if self.options.no_overlap:
            super().announce(name, gradient)
        else:
            with self.communicating():
                self.ddp.ready(name, gradient)

    def predicted(self) -> float:
        return 2 * (self.comm.size - 1) / self.comm.size * self.nbytes


class WithFSDP(Trainer):
    """Trains with FullyShardedDataParallel."""

    def prepare(self) -> None:
        options = self.options
        self.driver = self.fsdp = parallel.FullyShardedDataParallel(
            self.start,
            comm=self.comm,
            prefetch=not options.no_prefetch,
            reshard_after_forward=not options.keep_gathered,
            param_dtype=options.param_dtype,
        )
        self._nbytes = _nbytes(self.start)
        self.start = {}
        self.optimizer = self.make_optimizer(self.fsdp.shards)

    def update(self, micro_batches: list[Data]) -> Iterator[Data]:
        """Yield the micro-batches to compute gradients for, and then update the shards."""
        yield from micro_batches
        with self.communicating():
            self.gradients = self.fsdp.synchronize()
        self.apply()

    def apply(self) -> None:
        """Update the shards with the gradients."""
        assert self.optimizer
        if self.options.clip:
            self.fsdp.clip_grad_norm(self.gradients, self.options.clip)
        self.optimizer.step(self.gradients)

    def forward(self, layer: int) -> contextlib.AbstractContextManager[Arrays]:
        """Return a context manager that gathers a layer, which is a unit, for its forward pass."""
        return self.entered(self.fsdp.forward(layer))

    def backward(self, layer: int) -> contextlib.AbstractContextManager[Arrays]:
        """Return a context manager that gathers a layer, which is a unit, for its backward pass."""
        return self.entered(self.fsdp.backward(layer))

    def announce(self, name: str, gradient: np.ndarray) -> None:
        with self.communicating():
            self.fsdp.ready(name, gradient)

    @contextlib.contextmanager
    def entered(self, unit: contextlib.AbstractContextManager[Arrays]) -> Iterator[Arrays]:
        """Enter a unit, and add the time to gather and to release it to `talking`."""
        with contextlib.ExitStack() as stack:
            with self.communicating():
                parameters = stack.enter_context(unit)
            yield parameters
            with self.communicating():
                stack.close()

    def parameters(self) -> Arrays:
        return self.fsdp.state_dict()

    def state_bytes(self) -> int:
        """Return the bytes of the shards of parameters, gradients and optimizer state on this rank."""
        assert self.optimizer
        return 2 * _nbytes(self.fsdp.shards) + sum(map(_nbytes, self.optimizer.state.values()))

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def predicted(self) -> float:
        """Return the predicted number of bytes that this rank sends in a step.

        Units are reduced once.  They are gathered twice, except for the last ones, which are kept after the forward
        pass.
        """
        units = [shard.size for shard in self.fsdp.shards.values()]
        kept = len(units) if self.options.keep_gathered else 1 if self.options.no_prefetch else 2
        itemsize = np.dtype(self.options.dtype).itemsize
        gathered = (2 * sum(units) - sum(units[-kept:])) * (2 if self.options.param_dtype else itemsize)
        return (self.comm.size - 1) * (gathered + sum(units) * itemsize)


class WithServer(Trainer):
    """Trains with ParameterServer."""

    def prepare(self) -> None:
        """Create the driver, and the optimizer if workers update the parameters."""
        options = self.options
        colocated = options.colocated or self.comm.size == 1
        servers = options.servers
        if options.elastic:  # the others go on with fewer servers
            servers = min(servers, max(1, self.comm.size - (not colocated)))
        self._computing = self.comm.size - (0 if colocated else servers)
        self.driver = self.ps = parallel.ParameterServer(
            self.start,
            optimizer=self.make_optimizer,
            update=options.update,
            mode=options.mode,
            staleness=options.staleness,
            servers=servers,
            colocated=colocated,
            ranks_per_worker=options.ranks_per_worker,
            comm=self.comm,
        )
        self.optimizer = self.ps.optimizer
        self.share = (self.comm.rank, self.workers) if self.ps.roles.works else None

    @property
    def workers(self) -> int:
        return self._computing

    def apply(self) -> None:
        """Push the gradients and pull the parameters."""
        with self.communicating():
            self.ps.step(self.gradients)

    def serve(self) -> None:
        """Serve until the workers have finished the epoch."""
        self.ps.serve()

    def finish(self) -> None:
        with self.communicating():
            self.ps.finish()

    def state_bytes(self) -> int:
        kept = self.optimizer.state.values() if self.optimizer else ()
        return 2 * _nbytes(self.start) + sum(map(_nbytes, kept))

    def predicted(self) -> float:
        """Return the predicted number of bytes that this rank sends in a step.

        Workers send their gradients; servers send their range of the parameters to every worker.
        """
        roles, servers = self.ps.roles, len(self.ps.roles.servers)
        other_workers = [ranks for ranks in roles.workers if self.comm.rank != ranks[0]]
        other_servers = [rank for rank in roles.servers if self.comm.rank != rank]
        serving = 0 if roles.server is None else len(other_workers)
        return (serving + (len(other_servers) if roles.leads else 0)) * self.nbytes / servers


class WithLocal(Trainer):
    """Trains with LocalSGD."""

    def prepare(self) -> None:
        """Create the driver, and the optimizer of this rank."""
        outer = partial(SGD, lr=0.7, momentum=0.9, nesterov=True) if self.options.outer == "diloco" else None
        self.driver = self.local = parallel.LocalSGD(self.start, self.options.every, outer=outer, comm=self.comm)
        self.optimizer = self.make_optimizer(self.start)

    def apply(self) -> None:
        """Update the parameters of this rank, and average them if it is time."""
        super().apply()
        with self.communicating():
            self.local.step()

    def predicted(self) -> float:
        return 2 * (self.comm.size - 1) / self.comm.size * self.nbytes / self.options.every


TRAINERS: dict[str, Callable[..., Trainer]] = {"ps": WithServer, "ddp": WithDDP, "fsdp": WithFSDP}
DRIVERS = TRAINERS | {"local": WithLocal}  # also those that do not compute what one process does
