# The public names, for type checkers and for lazy_loader, which reads only the relative imports.
import typing

import pycoll.simulate as _simulate
import pycoll.synthesize as _synthesize
import pycoll.trace as _trace

from .api.abort import abort_on_exception
from .api.collectives import (
    allgather,
    allgatherv,
    allreduce,
    alltoall,
    alltoallv,
    alltoallw,
    barrier,
    bcast,
    exscan,
    gather,
    gatherv,
    reduce,
    reduce_scatter,
    scan,
    scatter,
    scatterv,
)
from .api.comm import Cartcomm, Comm, Distgraphcomm, Graphcomm
from .api.explain import explain
from .api.neighbors import (
    neighbor_allgather,
    neighbor_allgatherv,
    neighbor_alltoall,
    neighbor_alltoallv,
    neighbor_alltoallw,
)
from .api.nonblocking import (
    allgather_init,
    allgatherv_init,
    allreduce_init,
    alltoall_init,
    alltoallv_init,
    alltoallw_init,
    barrier_init,
    bcast_init,
    exscan_init,
    gather_init,
    gatherv_init,
    iallgather,
    iallgatherv,
    iallreduce,
    ialltoall,
    ialltoallv,
    ialltoallw,
    ibarrier,
    ibcast,
    iexscan,
    igather,
    igatherv,
    ineighbor_allgather,
    ineighbor_allgatherv,
    ineighbor_alltoall,
    ineighbor_alltoallv,
    ineighbor_alltoallw,
    ireduce,
    ireduce_scatter,
    iscan,
    iscatter,
    iscatterv,
    neighbor_allgather_init,
    neighbor_allgatherv_init,
    neighbor_alltoall_init,
    neighbor_alltoallv_init,
    neighbor_alltoallw_init,
    reduce_init,
    reduce_scatter_init,
    scan_init,
    scatter_init,
    scatterv_init,
)
from .api.objects import (
    allgather_object,
    allreduce_object,
    alltoall_object,
    bcast_object,
    exscan_object,
    gather_object,
    reduce_object,
    scan_object,
    scatter_object,
)
from .api.pointtopoint import (
    irecv,
    isend,
    recv,
    send,
    sendrecv,
)
from .api.registered import empty, free, zeros
from .api.requests import (
    Persistent,
    Request,
)
from .api.several_requests import (
    startall,
    testall,
    testany,
    waitall,
    waitany,
)
from .api.sparse_exchange import sparse_exchange
from .arguments.ops import AVG, EXACT_SUM
from .base.counters import traffic
from .base.errors import CollectiveInterrupted, CollectiveTimeout, MismatchError, RankFailed, RemoteError
from .in_process import LocalComm, local
from .primitives.names import AlgorithmName, algorithms
from .runtime.attach import attach
from .runtime.gpu.select import select_device
from .runtime.progress_thread import progress_thread

if not typing.TYPE_CHECKING:
    from . import simulate as simulate
    from . import synthesize as synthesize
    from . import trace as trace

# These modules are callable, which type checkers do not support: for them, the names are objects of these types.

class _Simulate:
    Link = _simulate.Link
    Network = _simulate.Network
    Passed = _simulate.Passed
    Simulated = _simulate.Simulated
    simulate = staticmethod(_simulate.simulate)
    __call__ = staticmethod(_simulate.simulate)

class _Synthesize:
    Synthesized = _synthesize.Synthesized
    synthesize = staticmethod(_synthesize.synthesize)
    __call__ = staticmethod(_synthesize.synthesize)

class _Trace:
    Passes = _trace.Passes
    now = staticmethod(_trace.now)
    phase = _trace.phase
    since_last = staticmethod(_trace.since_last)
    trace = staticmethod(_trace.trace)
    under_way = staticmethod(_trace.under_way)
    __call__ = staticmethod(_trace.trace)

simulate: _Simulate
synthesize: _Synthesize
trace: _Trace

__version__: str
__all__ = [
    "AVG",
    "EXACT_SUM",
    "AlgorithmName",
    "Cartcomm",
    "CollectiveInterrupted",
    "CollectiveTimeout",
    "Comm",
    "Distgraphcomm",
    "Graphcomm",
    "LocalComm",
    "MismatchError",
    "Persistent",
    "RankFailed",
    "RemoteError",
    "Request",
    "abort_on_exception",
    "algorithms",
    "allgather",
    "allgather_init",
    "allgather_object",
    "allgatherv",
    "allgatherv_init",
    "allreduce",
    "allreduce_init",
    "allreduce_object",
    "alltoall",
    "alltoall_init",
    "alltoall_object",
    "alltoallv",
    "alltoallv_init",
    "alltoallw",
    "alltoallw_init",
    "attach",
    "barrier",
    "barrier_init",
    "bcast",
    "bcast_init",
    "bcast_object",
    "empty",
    "explain",
    "exscan",
    "exscan_init",
    "exscan_object",
    "free",
    "gather",
    "gather_init",
    "gather_object",
    "gatherv",
    "gatherv_init",
    "iallgather",
    "iallgatherv",
    "iallreduce",
    "ialltoall",
    "ialltoallv",
    "ialltoallw",
    "ibarrier",
    "ibcast",
    "iexscan",
    "igather",
    "igatherv",
    "ineighbor_allgather",
    "ineighbor_allgatherv",
    "ineighbor_alltoall",
    "ineighbor_alltoallv",
    "ineighbor_alltoallw",
    "irecv",
    "ireduce",
    "ireduce_scatter",
    "iscan",
    "iscatter",
    "iscatterv",
    "isend",
    "local",
    "neighbor_allgather",
    "neighbor_allgather_init",
    "neighbor_allgatherv",
    "neighbor_allgatherv_init",
    "neighbor_alltoall",
    "neighbor_alltoall_init",
    "neighbor_alltoallv",
    "neighbor_alltoallv_init",
    "neighbor_alltoallw",
    "neighbor_alltoallw_init",
    "progress_thread",
    "recv",
    "reduce",
    "reduce_init",
    "reduce_object",
    "reduce_scatter",
    "reduce_scatter_init",
    "scan",
    "scan_init",
    "scan_object",
    "scatter",
    "scatter_init",
    "scatter_object",
    "scatterv",
    "scatterv_init",
    "select_device",
    "send",
    "sendrecv",
    "simulate",
    "sparse_exchange",
    "startall",
    "synthesize",
    "testall",
    "testany",
    "trace",
    "traffic",
    "waitall",
    "waitany",
    "zeros",
]
