"""Each collective of torch.distributed as one of pycoll."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch import Tensor
from torch._C import _distributed_c10d as c10d

import pycoll
from pycoll.base.mpi import MPI

from . import sparse
from .arrays import as_array
from .flat import Actions, apart, elements, in_items, is_part, to_read, to_write
from .group import Group, collective
from .reductions import Reduction, reduction
from .work import All, MessageRequest, Work

Tensors = Sequence[Tensor]


class Collectives(Group):
    """A group whose collectives are those of pycoll."""

    @collective("all_reduce")
    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        """All-reduce in place."""
        opts = opts or c10d.AllreduceOptions()
        (tensor,) = _listed(tensors)
        if tensor.is_sparse:
            sparse.allreduce(tensor, opts.reduceOp, self.comm, self.seconds(opts))
            return self.work(opts, All([]), [tensor])
        return self._allreduce([tensor], opts)

    @collective("all_reduce")
    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        """All-reduce several tensors in place."""
        return self._allreduce(tensors, opts or c10d.AllreduceCoalescedOptions())

    def _allreduce(self, tensors: Tensors, opts: Any) -> Work:
        requests, after, op = [], [], opts.reduceOp
        for kind, tensor in [(reduction("all_reduce", op, tensor), tensor) for tensor in tensors]:
            buffer, deliver = to_write(tensor, filled=True)
            kind.scale(buffer)
            requests.append(pycoll.iallreduce(MPI.IN_PLACE, as_array(buffer), kind.name, comm=self.comm))
            after += [*kind.after(buffer, self.comm.size), *deliver]
        return self.work(opts, requests, tensors, after)

    @collective("broadcast")
    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        """Broadcast from `opts.rootRank`."""
        (tensor,) = _listed(tensors)
        buffer, after = (to_read(tensor), []) if self.comm.rank == opts.rootRank else to_write(tensor)
        request = pycoll.ibcast(as_array(buffer), opts.rootRank, comm=self.comm)
        return self.work(opts, request, [tensor], after)

    @collective("reduce")
    def reduce(self, tensors: Tensors, opts: Any) -> Work:
        """Reduce in place at `opts.rootRank`; the tensors of other ranks keep their values."""
        (tensor,) = _listed(tensors)
        kind, root = reduction("reduce", opts.reduceOp, tensor), opts.rootRank
        after: Actions = []
        if self.comm.rank == root:
            buffer, deliver = to_write(tensor, filled=True)
            kind.scale(buffer)
            after = [*kind.after(buffer, self.comm.size), *deliver]
            request = pycoll.ireduce(MPI.IN_PLACE, as_array(buffer), kind.name, root, comm=self.comm)
        else:
            given = as_array(kind.scaled(to_read(tensor)))
            request = pycoll.ireduce(given, None, kind.name, root, comm=self.comm)
        return self.work(opts, request, [tensor], after)

    @collective("all_gather")
    def allgather(self, outputs: Sequence[Tensor | Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """All-gather each input into one tensor, or into a list of tensors, whose sizes may differ between ranks."""
        requests, after = [], []
        for output, given in zip(outputs, inputs, strict=True):
            if isinstance(output, Tensor):
                counts = [given.numel()] * self.comm.size
            elif len(output) == self.comm.size:
                counts = [tensor.numel() for tensor in output]
            else:
                raise ValueError(
                    f"all_gather: the list has {len(output)} tensors, but the group {self.comm.size} ranks"
                )
            buffer, deliver = to_write(output)
            requests.append(self._allgather(buffer, given, counts))
            after += deliver
        return self.work(opts or c10d.AllgatherOptions(), requests, outputs, after)

    all_gather_single_coalesced = allgather

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """All-gather several inputs; `outputs` has a list for each rank, with a tensor for each input."""
        return self.allgather([list(tensors) for tensors in zip(*outputs, strict=True)], inputs, opts)

    def all_gather_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Work:
        """All-gather into one tensor."""
        return self.allgather([output], [given], opts)

    def _allgather(self, output: Tensor, given: Tensor, counts: list[int]) -> Any:
        if counts[self.comm.rank] != given.numel() or sum(counts) != output.numel():
            raise ValueError(
                f"all_gather: the output has {output.numel()} elements, with {counts[self.comm.rank]} of them for rank "
                f"{self.comm.rank}, whose input has {given.numel()}"
            )
        _check_dtypes("all_gather", output, given)
        given = to_read(given)
        recvbuf, sendbuf = as_array(output), as_array(given)
        if is_part(given, output):  # fully_shard gathers from a slice of the output
            sendbuf = MPI.IN_PLACE if given.data_ptr() == _start(output, counts, self.comm.rank) else sendbuf.copy()
        if min(counts) == max(counts):
            return pycoll.iallgather(sendbuf, recvbuf, comm=self.comm)
        return pycoll.iallgatherv(sendbuf, [recvbuf, in_items(counts, output, recvbuf)], comm=self.comm)

    @collective("gather")
    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Work:
        """Gather into a list of tensors at `opts.rootRank`."""
        (given,) = _listed(inputs)
        given, recvbuf = to_read(given), None
        after: Actions = []
        if self.comm.rank == opts.rootRank:
            _check_blocks("gather", outputs[0], [given.numel()] * self.comm.size)
            buffer, after = to_write(outputs[0])
            given, recvbuf = apart(given, buffer), as_array(buffer)
        request = pycoll.igather(as_array(given), recvbuf, opts.rootRank, comm=self.comm)
        return self.work(opts, request, outputs, after)

    @collective("scatter")
    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Work:
        """Scatter a list of tensors at `opts.rootRank`."""
        (output,) = _listed(outputs)
        sendbuf = None
        if self.comm.rank == opts.rootRank:
            _check_blocks("scatter", inputs[0], [output.numel()] * self.comm.size)
            sendbuf = as_array(apart(to_read(inputs[0]), output))
        buffer, after = to_write(output)
        request = pycoll.iscatter(sendbuf, as_array(buffer), opts.rootRank, comm=self.comm)
        return self.work(opts, request, outputs, after)

    @collective("reduce_scatter")
    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensor | Tensors], opts: Any = None) -> Work:
        """Reduce-scatter each input: one tensor, or a list of tensors, one for each rank, whose sizes may differ."""
        opts = opts or c10d.ReduceScatterOptions()
        requests, after, op = [], [], opts.reduceOp
        kinds = [reduction("reduce_scatter", op, each if isinstance(each, Tensor) else each[0]) for each in inputs]
        for kind, output, given in zip(kinds, outputs, inputs, strict=True):
            single = isinstance(given, Tensor)
            counts = [output.numel()] * self.comm.size if single else [tensor.numel() for tensor in given]
            request, deliver = self._reduce_scatter(kind, output, to_read(given), counts)
            requests.append(request)
            after += deliver
        return self.work(opts, requests, outputs, after)

    reduce_scatter_single_coalesced = reduce_scatter

    def reduce_scatter_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Work:
        """Reduce-scatter one tensor."""
        return self.reduce_scatter([output], [given], opts)

    def _reduce_scatter(self, kind: Reduction, output: Tensor, given: Tensor, counts: list[int]) -> tuple[Any, Actions]:
        if counts[self.comm.rank] != output.numel() or sum(counts) != given.numel():
            raise ValueError(
                f"reduce_scatter: the input has {given.numel()} elements, with {counts[self.comm.rank]} of them for "
                f"rank {self.comm.rank}, whose output has {output.numel()}"
            )
        _check_dtypes("reduce_scatter", output, given)
        buffer = kind.scaled(given)
        result, deliver = to_write(output)
        uneven = None if min(counts) == max(counts) else counts
        arrays = as_array(apart(buffer, result)), as_array(result)
        request = pycoll.ireduce_scatter(*arrays, kind.name, recvcounts=uneven, comm=self.comm)
        return request, [*kind.after(result, self.comm.size), *deliver]

    @collective("all_to_all")
    def all_to_all_single(
        self, output: Tensor, given: Tensor, output_splits: Sequence[int], input_splits: Sequence[int], opts: Any = None
    ) -> Work:
        """All-to-all of the rows of one tensor; equal numbers of rows for all ranks, without splits."""
        _check_dtypes("all_to_all", output, given)
        buffer, after = to_write(output)
        sendbuf, recvbuf = as_array(apart(to_read(given), buffer)), as_array(buffer)
        if output_splits or input_splits:
            sendcounts = in_items(elements("input", given, input_splits, self.comm.size), given, sendbuf)
            recvcounts = in_items(elements("output", output, output_splits, self.comm.size), output, recvbuf)
            request = pycoll.ialltoallv([sendbuf, sendcounts], [recvbuf, recvcounts], comm=self.comm)
        else:
            for name, tensor in (("input", given), ("output", output)):
                elements(name, tensor, (), self.comm.size)
            request = pycoll.ialltoall(sendbuf, recvbuf, comm=self.comm)
        return self.work(opts or c10d.AllToAllOptions(), request, [output], after)

    @collective("all_to_all")
    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """All-to-all of lists of tensors, one for each rank, which may have different sizes."""
        buffer, after = to_write(outputs)
        given = apart(to_read(inputs), buffer)
        sendbuf, recvbuf = as_array(given), as_array(buffer)
        sendcounts = in_items([tensor.numel() for tensor in inputs], given, sendbuf)
        recvcounts = in_items([tensor.numel() for tensor in outputs], buffer, recvbuf)
        request = pycoll.ialltoallv([sendbuf, sendcounts], [recvbuf, recvcounts], comm=self.comm)
        return self.work(opts or c10d.AllToAllOptions(), request, outputs, after)

    @collective("barrier")
    def barrier(self, opts: Any = None) -> Work:
        """Wait until all ranks have called this."""
        return self.work(opts or c10d.BarrierOptions(), pycoll.ibarrier(comm=self.comm))

    def monitored_barrier(self, given: Any = None, wait_all_ranks: bool = False) -> None:
        """Wait until all ranks have called this; the error of rank 0 names all ranks that are late.

        torch before 2.15 does not call this.  It passes the timeout to a process group, and options to a backend.
        """
        request = pycoll.ibarrier(algorithm="naive", comm=self.comm)
        if given is not None:
            request.set_timeout(given.total_seconds() if isinstance(given, timedelta) else self.seconds(given))
        request.Wait()

    def send(self, tensors: Tensors, dest: int, tag: int = 0) -> Work:
        """Send a tensor to a rank of the group."""
        (tensor,) = _listed(tensors)
        buffer = to_read(tensor)
        request = pycoll.isend(as_array(buffer), dest, tag, comm=self.comm)
        message = MessageRequest(request, f"send to rank {dest} with tag {tag}", dest, self._seconds)
        return self.work(None, message, [buffer])

    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> Work:
        """Receive a tensor from a rank of the group."""
        (tensor,) = _listed(tensors)
        buffer, after = to_write(tensor)
        request = pycoll.irecv(as_array(buffer), source, tag, comm=self.comm)
        rank = "any rank" if source == MPI.ANY_SOURCE else f"rank {source}"
        message = MessageRequest(request, f"recv from {rank} with tag {tag}", source, self._seconds)
        return self.work(None, message, [tensor], after)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        """Receive a tensor from any rank of the group."""
        return self.recv(tensors, MPI.ANY_SOURCE, tag)


def _listed(tensors: Tensors | Tensor) -> Tensors:
    tensors = [tensors] if isinstance(tensors, Tensor) else tensors
    if len(tensors) != 1:
        raise ValueError(f"a collective takes one tensor, not {len(tensors)}")
    return tensors


def _check_dtypes(what: str, output: Tensor, given: Tensor) -> None:
    if output.dtype != given.dtype:
        raise TypeError(f"{what}: the input has dtype {given.dtype}, the output {output.dtype}")


def _check_blocks(what: str, tensors: Tensors, counts: list[int]) -> None:
    found = [tensor.numel() for tensor in tensors]
    if found != counts:
        raise ValueError(f"{what}: the tensors of the list have {found} elements, not {counts}")


def _start(tensor: Tensor, counts: list[int], rank: int) -> int:
    return int(tensor.data_ptr() + sum(counts[:rank]) * tensor.itemsize)
