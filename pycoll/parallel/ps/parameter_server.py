"""Data parallelism with a parameter server: workers push gradients to servers, and pull parameters or averages."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.trace import now, phase, since_last

from ...base.numbers import check_integer
from ...runtime.failures import TOLERANT
from ...runtime.interruptions import interruptions_delayed
from ...runtime.progress import until
from ..agreement import check_same_arrays, check_same_options
from ..driver import Driver, own_communicator
from ..flat import Array, Arrays, FlatLayout, Piece, by_dtype, check_arrays, check_gradient, empty, shared_empty
from ..optimizers import MakeOptimizer, Optimizer
from .loans import Vectors
from .roles import Roles
from .server import Server, Serving, keyed
from .worker import AHEAD, MOST_LENT, ServerLink, share

MODES = ("sync", "async", "bounded")


class ParameterServer(Driver):
    """Workers push gradients to one or several servers, and pull parameters or averaged gradients.

    All ranks of `comm` create the driver together.  It sets `parameters` to the values of rank 0; `step` updates them
    in place.

    Parameters
    ----------
    parameters : mapping of str to array
        The arrays to train, with a floating-point or complex dtype.
    optimizer : callable, optional
        Makes the optimizer from a dict of arrays, for example ``partial(SGD, lr=0.1)``.  It may be None in mode "sync"
        with ``update="worker"``; then `step` returns the averaged gradients.
    update : {"server", "worker"}
        The ranks that update the parameters.
    mode : {"sync", "async", "bounded"}
        See Notes.
    staleness : int
        The bound of mode "bounded", in steps.
    servers : int
        The number of servers.  They share the elements of the parameters evenly.
    colocated : bool
        If false, the last `servers` ranks only serve.  If true, the first ranks of the first `servers` workers serve
        as well, whenever they are in a call of this driver.
    ranks_per_worker : int or "host"
        The number of ranks of a worker; "host" makes all ranks of a host one worker.  The ranks of a worker add up
        their gradients, and the first of them pushes and pulls for all.
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, COMM_WORLD by default.  The driver uses a duplicate of it.

    Attributes
    ----------
    staleness : list of int
        For each step of this worker, the number of steps by which the updates of the slowest worker were behind.
        `finish` clears it.
    waited : list of float
        The seconds that this worker waited before each step.  `finish` clears it.

    Raises
    ------
    TypeError
        If parameters are not a mapping from str to arrays, are integers, or are in different memories.
    ValueError
        If an array is read-only or not C-contiguous, two parameters share memory, or an option is invalid.  Also on all
        ranks if names, shapes or dtypes differ between ranks; the message names the first difference.

    Notes
    -----
    The modes are:

    - "sync": the gradients of all workers in a step are averaged over all ranks and applied, in an order that does not
      depend on timing.  The result is the same as for training on the global batch.
    - "bounded": as "sync", but a worker may begin step n before the updates of the last s steps have arrived, where s
      is `staleness`.  Its parameters include at least the updates of all workers through step n-s-1.  ``staleness=0``
      is equivalent to "sync".
    - "async": a server applies each gradient when it arrives.  A worker continues with the parameters it has, with at
      most one unanswered push.

    A rank that only serves calls ``ps.serve()``.  A worker calls ``ps.step(gradients)`` for each of its batches; the
    numbers of batches may differ between workers.  Then all ranks call ``ps.finish()``; after that, training may
    continue.  A call that waits for a message for more than ``PYCOLL_TIMEOUT`` seconds raises
    `pycoll.CollectiveTimeout`.  After that the driver is unusable.

    References
    ----------
    Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014.
    https://www.usenix.org/conference/osdi14/technical-sessions/presentation/li_mu
    """

    @interruptions_delayed()
    def __init__(
        self,
        parameters: Arrays,
        *,
        optimizer: MakeOptimizer | None = None,
        update: str = "server",
        mode: str = "sync",
        staleness: int = 0,
        servers: int = 1,
        colocated: bool = False,
        ranks_per_worker: int | str = 1,
        comm: MPI.Comm | None = None,
    ) -> None:
        self.parameters = check_arrays("parameters", parameters)
        check_integer("staleness", staleness, "number of steps")
        check_integer("servers", servers, "number of servers")
        _check_choices(mode, staleness, update, optimizer)
        self._layouts = {str(dtype): FlatLayout(group) for dtype, group in by_dtype(self.parameters).items()}
        with own_communicator(comm) as self.comm:
            check_same_arrays("parameter", self.parameters, self.comm)
            check_same_options(
                self.comm,
                update=update,
                mode=mode,
                staleness=staleness,
                servers=servers,
                colocated=colocated,
                ranks_per_worker=ranks_per_worker,
            )
            if (size := sum(layout.size for layout in self._layouts.values())) < servers:
                raise ValueError(f"servers={servers}: there are only {size} elements to share")
            if optimizer:
                optimizer({})  # raises its errors on all ranks
            self.roles = Roles(self.comm, servers, colocated, ranks_per_worker)
        for array in self.parameters.values():
            pycoll.bcast(array, comm=self.comm)
        self._mode, self._server_updates = mode, update == "server"
        bound = None if mode == "async" else staleness
        lent = min(1 + (AHEAD if bound is None else bound), MOST_LENT) if self.roles.leads else 0
        # the values are the parameters, or the averaged gradients
        self._values, *spare = self._allocate_shared(1 + lent)
        self.optimizer = None
        self._server: Server | None = None
        if self.roles.server is not None:
            self._become_server(optimizer)
        self._worker_updates = not self._server_updates and optimizer is not None
        if self._worker_updates:  # `finish` gives its state to all ranks
            assert optimizer
            self.optimizer = optimizer(self.parameters)
        allocate, take, wait = self._allocate, self._take, self._wait
        workers = len(self.roles.workers)
        self._link = ServerLink(self.comm, self.roles.servers, workers, spare, allocate, take, bound, wait)
        self._begin()
        self._created = now()

    def _become_server(self, optimizer: MakeOptimizer | None) -> None:
        self._pack(self.parameters, self._values)
        values = [vector[self._range(vector)].copy() for vector in self._values]
        if optimizer and self._server_updates:
            self.optimizer = optimizer(keyed(values))
        self._server = Server(values, self.roles.workers, self.comm, self.optimizer if self._server_updates else None)

    def _begin(self) -> None:
        self.staleness, self.waited = [0], [0.0]
        self._news = False  # whether an answer has arrived that other ranks of the worker do not have yet
        self._serving: Serving | None = None
        if self._server:
            self._serving = Serving(self._server.at_once() if self._mode == "async" else self._server.in_steps())

    def serve(self) -> None:
        """Serve until the last worker has finished.  Only ranks that are not workers call this.

        Raises
        ------
        RuntimeError
            On a rank of a worker.
        """
        if self.roles.works or not self._serving:
            raise RuntimeError(f"serve: rank {self.comm.rank} is a worker")
        with self._usable():
            self._serving.run(f"serve on rank {self.comm.rank}")

    def step(self, gradients: Arrays) -> dict[str, Array] | None:
        """Push the gradients of this rank, then pull, so that the next step may begin.

        Parameters
        ----------
        gradients : mapping of str to array
            A gradient for each parameter, with the shape of the parameter and in the same memory.  They are copied.

        Returns
        -------
        dict of str to array, or None
            Without an optimizer the averaged gradients, valid until the next step; otherwise None.

        Raises
        ------
        ValueError
            If names or shapes differ from the parameters.
        TypeError
            If a gradient is not in the same memory as its parameter, or cannot be cast to the dtype of the parameter.
        RuntimeError
            On a rank that only serves.
        """
        self.push(gradients)
        return self.pull()

    def push(self, gradients: Arrays) -> None:
        """Start to send a copy of the gradients.  Errors are those of `step`."""
        if not self.roles.works:
            raise RuntimeError(f"push: rank {self.comm.rank} is a server")
        if gradients.keys() != self.parameters.keys():
            odd = sorted(gradients.keys() ^ self.parameters.keys())
            raise ValueError(f"gradients and parameters have different names: {', '.join(map(repr, odd))}")
        gradients = {
            name: check_gradient(f"gradients[{name!r}]", gradient, self.parameters[name])
            for name, gradient in gradients.items()
        }
        since_last("forward and backward", self._created)
        with self._usable():
            self._push(gradients)

    @phase("push")
    def _push(self, gradients: Arrays) -> None:
        vectors = self._link.gradient
        self._pack(gradients, vectors)
        group = self.roles.group
        if group.size > 1:
            for vector in vectors:
                pycoll.reduce(MPI.IN_PLACE if self.roles.leads else vector, vector, comm=group)
        if self.roles.leads:
            self._link.push()
            self.progress()

    def pull(self) -> dict[str, Array] | None:
        """Take the answers that have arrived, and wait for others if the mode requires it; return values as `step`."""
        with self._usable():
            return self._pull()

    @phase("pull")
    def _pull(self) -> dict[str, Array] | None:
        self._news = False
        waited = self._link.pull() if self.roles.leads else 0.0
        about = np.array([waited, self._link.staleness, self._news])
        if self.roles.group.size > 1:
            pycoll.bcast(about, comm=self.roles.group)
            if about[2]:
                self._hand_on()
        if about[2] and (self._server_updates or (self._worker_updates and not self.roles.leads)):
            self._unpack()
        self.waited.append(float(about[0]))
        self.staleness.append(int(about[1]))
        return None if self._server_updates or self._worker_updates else self._views(self._values)

    def progress(self) -> None:
        """Advance the server on this rank, if there is one.  Call this during long computations."""
        if self._serving:
            self._serving.poll()

    def finish(self) -> None:
        """Give all ranks the final parameters.  All ranks call this together, when their batches are done.

        If servers update, these are the parameters on the servers.  If workers update, these are the parameters of the
        worker that took the most steps, and all ranks also get the state of its optimizer.
        """
        with self._usable():
            if self.roles.leads:
                self._link.leave()
            if self._serving:
                self._serving.run(f"finish on rank {self.comm.rank}")
            self._spread(len(self.staleness))
        self._begin()

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        """Reject calls after one has timed out or ranks have failed, because its messages are still pending."""
        channel = pycoll.attach(self.comm)
        channel.check_usable()
        try:
            yield
        except pycoll.CollectiveTimeout as timeout:
            channel.abandon(timeout, self, self._link)
            raise
        except MPI.Exception as error:
            failure = channel.interrupted(f"the parameter server on rank {self.comm.rank}", error, self, self._link)
            if TOLERANT:  # ranks that wait for this one leave their calls too
                self.revoke()
            if failure is error:
                raise
            raise failure from error

    def _spread(self, steps: int) -> None:
        """Give all ranks the parameters."""
        if self._server_updates:
            for number, server in enumerate(self.roles.servers):
                for index, vector in enumerate(self._values):
                    part = vector[share(len(vector), len(self.roles.servers), number)]
                    if self._server and server == self.comm.rank:
                        part[...] = self._server.values[index]
                    pycoll.bcast(part, server, comm=self.comm)
            self._unpack()
        else:
            taken = pycoll.allgather(np.array([steps * self.roles.leads]), comm=self.comm)
            root = int(taken.argmax())
            for array in self.parameters.values():
                pycoll.bcast(array, root, comm=self.comm)
            if self.optimizer:
                self._spread_state(self.optimizer, root)

    def _spread_state(self, optimizer: Optimizer, root: int) -> None:
        """Give all ranks the state of the optimizer on the root."""
        for arrays in optimizer.state.values():
            for array in arrays.values():
                pycoll.bcast(array, root, comm=self.comm)
        steps = pycoll.bcast(np.array([*optimizer.steps.values()]), root, comm=self.comm)
        optimizer.steps.update(zip(optimizer.steps, steps.tolist()))

    def _take(self, answer: Vectors) -> Vectors:
        """Use an answer of the servers; return vectors for the next one."""
        self._news = True
        if self._worker_updates:
            assert self.optimizer
            self.optimizer.step(self._views(answer))
            return answer
        self._values, unused = answer, self._values
        return unused

    def _hand_on(self) -> None:
        """Broadcast an answer from the rank that pulls it to the other ranks of its worker."""
        if self.roles.leads and self._worker_updates:
            self._pack(self.parameters, self._values)
        for vector in self._values:
            pycoll.bcast(vector, comm=self.roles.group)

    def _wait(self, requests: list[MPI.Request], state: Callable[[], str]) -> None:
        """Wait for messages of the worker on this rank; meanwhile advance the server on this rank, if there is one."""

        def done() -> bool:
            self.progress()
            return pycoll.testall(requests)[0]

        def both() -> str:
            served = self._serving.state if self._serving else ""
            return f"{state()}; the server on this rank: {served}" if served else state()

        until(done, f"the worker on rank {self.comm.rank}", both)

    def _allocate(self) -> Vectors:
        """Allocate vectors for all parameters."""
        return [empty(like, size) for like, size in self._likes()]

    def _allocate_shared(self, count: int) -> list[Vectors]:
        """Allocate several times, in registered memory if possible; all ranks call this together."""
        blocks = [
            shared_empty(like, count * size, None, self.comm).reshape(count, size) for like, size in self._likes()
        ]
        return [[*vectors] for vectors in zip(*blocks)]

    def _likes(self) -> Iterator[tuple[Array, int]]:
        """Yield an array of each dtype, and the number of elements of all arrays of this dtype."""
        for group, layout in zip(by_dtype(self.parameters).values(), self._layouts.values()):
            yield next(iter(group.values())), layout.size

    def _views(self, vectors: Vectors) -> dict[str, Array]:
        views: dict[str, Array] = {}
        for layout, vector in zip(self._layouts.values(), vectors):
            views |= layout.views(vector)
        return {name: views[name] for name in self.parameters}

    def _pack(self, arrays: Arrays, vectors: Vectors) -> None:
        for name, view in self._views(vectors).items():
            np.copyto(view, arrays[name], casting="same_kind")

    def _unpack(self) -> None:
        for name, view in self._views(self._values).items():
            np.copyto(self.parameters[name], view)

    def _range(self, vector: Array) -> slice:
        assert self.roles.server is not None
        return share(len(vector), len(self.roles.servers), self.roles.server)

    @property
    def saved(self) -> dict[str, Arrays]:
        """The arrays that a checkpoint holds.  They are valid between `finish` and the next step."""
        if self._server_updates:
            return {"parameters": keyed(self._server.values) if self._server else {}}
        return super().saved

    @property
    def saves(self) -> bool:
        """Whether the arrays of this rank go into a checkpoint: on all servers if they update, else on rank 0."""
        return self._server is not None if self._server_updates else super().saves

    def pieces(self, arrays: Arrays) -> Iterator[tuple[str, str, Piece]]:
        """Split parameters into (name, name, piece), or vectors of a server into (dtype, name of parameter, piece)."""
        if not self._server_updates:
            yield from super().pieces(arrays)
            return
        for dtype, vector in arrays.items():
            start = share(self._layouts[dtype].size, len(self.roles.servers), self.roles.server or 0).start
            for name, piece in self._layouts[dtype].pieces(vector, start):
                yield dtype, name, piece

    def loaded(self) -> None:
        """Give all ranks the parameters of the checkpoint that has been loaded."""
        self._spread(0)

    @property
    def updates(self) -> bool:
        """Whether the servers or the workers update the parameters by an optimizer of their own."""
        return self._server_updates or self._worker_updates

    @property
    def replicated(self) -> bool:
        """Whether the workers update, so that each has all of the state; otherwise each server has a part."""
        return not self._server_updates

    @property
    def holds_state(self) -> bool:
        """Whether this rank updates parameters."""
        return self._server is not None if self._server_updates else self.roles.leads

    @property
    def lockstep(self) -> bool:
        """Whether all servers do the same steps."""
        return self._link.in_step

    @property
    def steps(self) -> int:
        """On a server, the number of steps of the slowest worker whose gradients have been applied; otherwise 0."""
        return self._server.steps if self._server else 0

    def on_update(self, function: Callable[[], object]) -> None:
        """Call a function on this rank after each update of its server, before workers get the answer."""
        if self._server:
            self._server.updated = function

    def communicators(self) -> Iterator[MPI.Comm]:
        """Yield the communicators of this driver."""
        yield self.roles.group
        yield self.comm

    def free(self) -> None:
        """Free the communicators.  The end of a ``with`` block calls this too."""
        if self.roles.group != MPI.COMM_NULL:
            self.roles.group.Free()
            del self._link  # it refers to this object, so that its vectors would live until the next garbage collection
        super().free()


def _check_choices(mode: str, staleness: int, update: str, optimizer: MakeOptimizer | None) -> None:
    if mode not in MODES:
        raise ValueError(f"mode={mode!r} is not one of: {', '.join(MODES)}")
    if staleness < 0 or (staleness and mode != "bounded"):
        raise ValueError(f"staleness={staleness} is invalid with mode={mode!r}")
    if update not in ("server", "worker"):
        raise ValueError(f"update={update!r} is neither 'server' nor 'worker'")
    if update == "server" and optimizer is None:
        raise ValueError("update='server' needs an optimizer")
    if mode == "async" and update == "worker":
        raise ValueError(
            "mode='async' needs update='server': all workers pull the parameters that each gradient has updated"
        )
    if mode == "bounded" and optimizer is None:
        raise ValueError("mode='bounded' needs an optimizer: several averages may arrive at once")
