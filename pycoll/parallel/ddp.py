"""Distributed data parallel: each rank trains on its part of each batch, and the gradients are averaged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.primitives import names
from pycoll.trace import Passes, phase

from ..base.numbers import check_positive
from ..runtime.interruptions import interruptions_delayed
from .agreement import check_same_arrays, check_same_options, largest
from .buckets import Bucket, assign
from .clipping import clip_by_global_norm
from .compression import Cast, Hook, average, check_hook
from .driver import Driver, check_algorithm, own_communicator
from .flat import Array, Arrays, check_arrays, check_gradient, copy, empty, fill, hand_over, whole_pieces


class DistributedDataParallel(Driver):
    """Average gradients over the ranks while the backward pass computes the next ones.

    All ranks of `comm` create the driver together.  It sets `parameters` and `buffers` to the values of rank 0.

    Parameters
    ----------
    parameters : mapping of str to array
        The arrays to train, in forward order, with a floating-point or complex dtype.
    buffers : mapping of str to array, optional
        Other arrays of the model, with any dtype.  They have no gradients.
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, COMM_WORLD by default.  The driver uses a duplicate of it.
    bucket_bytes : int
        Size limit of a bucket, in bytes.  A larger array has a bucket of its own.
    first_bucket_bytes : int, optional
        Size limit of the first bucket of each dtype, in bytes.  The default is the smaller of 1 MiB and
        `bucket_bytes`, so that communication begins early.
    hook : generator function of a `Bucket`
        Averages a full bucket, see `pycoll.parallel.compression`.  The default is one all-reduce without compression.
    find_unused : bool
        If true, a step may leave out gradients, see `synchronize`.
    algorithm : str or None, default "ring"
        Algorithm of the all-reduce.  With None, pycoll chooses: only then do tuning files and PYCOLL_ALLREDUCE apply.

    Raises
    ------
    TypeError
        If parameters are not a mapping from str to arrays, are integers, or are in different memories, or if `hook`
        does not support their dtype.
    ValueError
        If an array is read-only or not C-contiguous, two parameters share memory, a name is both a parameter and a
        buffer, or an option is invalid.  Also on all ranks if names, shapes or dtypes differ between ranks; the message
        names the first difference.

    Notes
    -----
    Buckets take the parameters in reverse order, the order in which the backward pass computes gradients.  A full
    bucket is averaged at once.  All ranks average the buckets in the same order.

    In each step, call `ready` with the gradient of each parameter, in any order; then `synchronize` returns the
    averages.  Communication makes progress in `ready`, `progress` and `synchronize`, and each millisecond in another
    thread; with `pycoll.progress_thread`, more often.

    References
    ----------
    Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.
    https://doi.org/10.14778/3415478.3415530

    Sergeev and Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow", 2018 (the ring all-reduce
    for gradients).
    """

    @interruptions_delayed()
    def __init__(
        self,
        parameters: Arrays,
        buffers: Arrays | None = None,
        *,
        comm: MPI.Comm | None = None,
        bucket_bytes: int = 25 << 20,
        first_bucket_bytes: int | None = None,
        hook: Hook = average,
        find_unused: bool = False,
        algorithm: names.Allreduce | None = "ring",
    ) -> None:
        self.parameters = check_arrays("parameters", parameters)
        self.buffers = check_arrays("buffers", {} if buffers is None else buffers, trained=False)
        check_algorithm(algorithm, "allreduce")
        if not callable(hook) or isinstance(hook, type):
            raise TypeError(f"hook must be a generator function of a Bucket, for example Cast('float16'), not {hook!r}")
        check_hook(hook, self.parameters)
        check_positive("bucket_bytes", bucket_bytes, "number of bytes")
        if first_bucket_bytes is None:
            first_bucket_bytes = min(1 << 20, bucket_bytes)
        check_positive("first_bucket_bytes", first_bucket_bytes, "number of bytes")
        with own_communicator(comm) as self.comm:
            check_same_arrays("parameter", self.parameters, self.comm)
            check_same_arrays("buffer", self.buffers, self.comm)
            check_same_options(
                self.comm,
                bucket_bytes=bucket_bytes,
                first_bucket_bytes=first_bucket_bytes,
                find_unused=find_unused,
                algorithm=algorithm,
            )
            if both := self.parameters.keys() & self.buffers.keys():
                raise ValueError(f"buffers: {', '.join(map(repr, sorted(both)))} are names of parameters too")
        self.hook, self.find_unused = hook, find_unused
        wire = hook.dtype if isinstance(hook, Cast) else None
        self._broadcast(0)
        self._buckets = [
            Bucket(index, {name: self.parameters[name] for name in names}, self.comm, algorithm, wire)
            for index, names in enumerate(assign(self.parameters, bucket_bytes, first_bucket_bytes))
        ]
        self._home = {name: bucket for bucket in self._buckets for name in bucket.views}
        self._next = 0  # the next bucket to start
        self._added: set[str] = set()  # parameters with gradients from earlier backward passes
        self._accumulating = False
        self._joining = False
        self._active: pycoll.Request | None = None  # counts the ranks that have a batch in this step
        self._steps = 0
        self._passes = Passes()

    @property
    def gradients(self) -> dict[str, Array]:
        """Views of the buckets by name, in the order of the parameters.

        A gradient that is computed in its view needs no copy in `ready`.  Within `no_sync`, do this only in the first
        backward pass: in later passes it would overwrite the sum.
        """
        return {name: self._home[name].views[name] for name in self.parameters}

    def ready(self, name: str, gradient: Array) -> None:
        """Pass the gradient of a parameter.  A bucket is averaged as soon as `ready` has all its gradients.

        Parameters
        ----------
        name : str
            The name of the parameter.
        gradient : array
            Its gradient, with the shape of the parameter and in the same memory.  It is copied into the bucket, unless
            it is the view in `gradients`.

        Raises
        ------
        ValueError
            If the name is unknown, the parameter already has a gradient in this step, or the shape is wrong.
        TypeError
            If a gradient is not in the same memory as its parameter, or cannot be cast to the dtype of the parameter.
        """
        gradient = self._checked(name, gradient)
        self._passes.gradient()
        bucket = self._home[name]
        view = bucket.views[name]
        if gradient is view:
            pass
        elif name in self._added:
            np.add(view, gradient, out=view, casting="same_kind")
        else:
            np.copyto(view, gradient, casting="same_kind")
        hand_over(view)
        if self._accumulating:
            self._added.add(name)
            return
        self._begin_step()
        bucket.missing.discard(name)
        self._start_full_ones()
        self.progress()

    def _checked(self, name: str, gradient: Array) -> Array:
        """Return a gradient that `ready` can take, as an array."""
        if name not in self._home:
            raise ValueError(f"name={name!r} is not a parameter")
        if name not in self._home[name].missing:
            raise ValueError(f"name={name!r} already has a gradient in this step")
        return check_gradient(f"the gradient of {name!r}", gradient, self._home[name].views[name])

    def progress(self) -> bool:
        """Advance communication; return whether all buckets that were started are complete."""
        return all(bucket.progress() for bucket in self._buckets[: self._next])

    def synchronize(self) -> dict[str, Array]:
        """Wait for the averages and return them.

        With ``find_unused=True``, missing gradients count as zero, and parameters without a gradient on any rank are
        left out of the result.  They are in the result if the hook, for example `TopK`, now sends gradients of them
        that it kept in earlier steps.

        Returns
        -------
        dict of str to array
            The averages by parameter name, as views of the buckets.  They are valid until the next step begins.

        Raises
        ------
        RuntimeError
            If called within `no_sync`, or if a gradient is missing and `find_unused` is false.
        """
        if self._accumulating:
            raise RuntimeError("synchronize: gradients are not averaged within no_sync()")
        missing = [name for name in self.parameters if name in self._home[name].missing - self._added]
        if missing and not self.find_unused:
            raise RuntimeError(
                f"synchronize: ready was not called for {', '.join(map(repr, missing))}; "
                "pass find_unused=True if a step does not use all parameters"
            )
        self._steps += 1
        self._passes.over()
        used = self._average(missing)
        return {name: view for (name, view), is_used in zip(self.gradients.items(), used) if is_used}

    def average_gradients(self, gradients: Arrays) -> dict[str, Array]:
        """Average all gradients in one call: `ready` for each, in reverse order, then `synchronize`.

        An error in one of the gradients is raised before anything is sent.
        """
        gradients = {name: self._checked(name, gradient) for name, gradient in gradients.items()}
        for name in reversed(list(gradients)):
            self.ready(name, gradients[name])
        return self.synchronize()

    def zero_grad(self) -> None:
        """Drop a step: discard all gradients since the last `synchronize`, also those of `no_sync`.

        All ranks call this together.  Buckets that a rank has started are averaged on all ranks, and discarded.  What
        `TopK` has kept from earlier steps remains.

        Raises
        ------
        RuntimeError
            If a step has begun within `join`, because ranks without a batch take part in it.
        """
        if self._active is not None:
            raise RuntimeError("zero_grad: a step that has begun cannot be dropped within join()")
        if not self._joining:
            self._drop_started()
        for bucket in self._buckets:
            bucket.missing = set(bucket.views)
        self._added.clear()
        self._passes.over()

    def _drop_started(self) -> None:
        """Complete what any rank has started, without the results."""
        started = largest(self._next, self.comm)
        for bucket in self._buckets[self._next : started]:
            bucket.vector[...] = 0
            bucket.start(self.hook)
        for bucket in self._buckets[:started]:
            bucket.drop()
        self._next = 0

    def clip_grad_norm(self, max_norm: float) -> float:
        """Scale the averages so that their global norm is at most `max_norm`; return the norm before scaling."""
        return clip_by_global_norm(self.gradients, max_norm)

    def _begin_step(self) -> None:
        if self._joining and self._active is None:
            self._active = pycoll.iallreduce(np.array([1]), comm=self.comm)

    @phase("synchronize")
    def _average(self, missing: list[str]) -> list[bool]:
        """Average, with zeros for missing gradients; return for each parameter whether it has an average."""
        self._begin_step()
        for name in missing:
            self._home[name].views[name][...] = 0
        for bucket in self._buckets:
            bucket.missing.clear()
        self._start_full_ones()
        using = None
        if self.find_unused:
            mine = np.array([name not in missing for name in self.parameters])
            using = pycoll.iallreduce(mine, op="lor", comm=self.comm)
        for bucket in self._buckets:
            bucket.finish()
        if self._active is not None:
            active, self._active = int(self._active.wait()[0]), None
            if 0 < active < self.comm.size:
                for bucket in self._buckets:
                    bucket.vector *= self.comm.size / active
        self._next = 0
        self._added.clear()
        if using is None:
            return [True] * len(self.parameters)
        return [used or self._sends_kept(name) for name, used in zip(self.parameters, using.wait().tolist())]

    def _sends_kept(self, name: str) -> bool:
        """Whether the average of an unused parameter consists of gradients that the hook kept in earlier steps."""
        bucket = self._home[name]
        return bool(bucket.state) and bool(bucket.views[name].any())

    def _start_full_ones(self) -> None:
        while self._next < len(self._buckets) and not self._buckets[self._next].missing:
            self._buckets[self._next].start(self.hook)
            self._next += 1

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients: within this block `ready` only adds them up, for the step that follows the block."""
        before, self._accumulating = self._accumulating, True
        try:
            yield
        finally:
            self._accumulating = before
            self._passes.over()

    @contextlib.contextmanager
    def join(self) -> Iterator[None]:
        """Support ranks with different numbers of steps: all ranks train within this block.

        A rank that reaches the end of the block takes part in the remaining steps of the other ranks.  Averages are
        over the ranks that are still active.  When all ranks have reached the end, parameters and buffers are set to
        the values of the rank that took the most steps.  The state of optimizers is not synchronized.  Compare
        ``torch.distributed.algorithms.join``.
        """
        self._joining, self._steps = True, 0
        try:
            yield
            while self._others_are_active():
                self._average(list(self.parameters))
            steps = pycoll.allgather(np.array([self._steps]), comm=self.comm)
            self._broadcast(int(steps.argmax()))
        finally:
            self._joining, self._active = False, None
            self._added.clear()

    def _others_are_active(self) -> bool:
        """Return whether another rank begins a step; this rank does not."""
        self._active = pycoll.iallreduce(np.array([0]), comm=self.comm)
        return bool(self._active.wait()[0])

    def _broadcast(self, root: int) -> None:
        for array in (*self.parameters.values(), *self.buffers.values()):
            pycoll.bcast(array, root, comm=self.comm)

    def state_dict(self) -> dict[str, Array]:
        """Return copies of the parameters and buffers, by name."""
        return {name: array.copy() for name, array in (self.parameters | self.buffers).items()}

    def load_state_dict(self, state: Arrays) -> None:
        """Set parameters and buffers from arrays by name.

        Raises
        ------
        ValueError
            If a parameter or buffer is missing or has the wrong shape.
        """
        for name, piece in whole_pieces(self.parameters | self.buffers):
            fill(piece, name, [found for _, found in whole_pieces({name: state[name]})] if name in state else [])

    @property
    def saved(self) -> dict[str, Arrays]:
        """The arrays that a checkpoint holds: parameters and buffers."""
        return {**super().saved, "buffers": self.buffers}

    @property
    def private(self) -> dict[str, Array]:
        """The arrays that the hook keeps from step to step."""
        return {f"{bucket.index}.{name}": array for bucket in self._buckets for name, array in bucket.state.items()}

    def check_private(self, arrays: Arrays) -> None:
        """Raise ValueError if the arrays do not fit the buckets of this driver."""
        fitting = {str(bucket.index): len(bucket.vector) for bucket in self._buckets}
        for key, array in arrays.items():
            index, _, name = key.partition(".")
            if array.shape != (fitting.get(index),) or not name:
                raise ValueError(f"the saved hook state for bucket {index} does not fit the buckets of this driver")

    def load_private(self, arrays: Arrays) -> None:
        """Restore the state of the hook.  For buckets without saved arrays the hook starts afresh."""
        for bucket in self._buckets:
            bucket.state.clear()
        for key, array in arrays.items():
            index, _, name = key.partition(".")
            bucket = self._buckets[int(index)]
            bucket.state[name] = empty(bucket.vector, len(array), array.dtype)
            copy(bucket.state[name], array)

    def free(self) -> None:
        """Free the requests and the communicator.  The end of a ``with`` block calls this too."""
        for bucket in self._buckets:
            bucket.free()
        super().free()
