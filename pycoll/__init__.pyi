# The public names, for type checkers and for lazy_loader, which reads only the relative imports.
import typing

import pycoll.simulate as _simulate
import pycoll.synthesize as _synthesize
import pycoll.trace as _trace

from .api.abort import abort_on_exception as abort_on_exception
from .api.collectives import (
    allgather as allgather,
    allgatherv as allgatherv,
    allreduce as allreduce,
    alltoall as alltoall,
    alltoallv as alltoallv,
    alltoallw as alltoallw,
    barrier as barrier,
    bcast as bcast,
    exscan as exscan,
    gather as gather,
    gatherv as gatherv,
    reduce as reduce,
    reduce_scatter as reduce_scatter,
    scan as scan,
    scatter as scatter,
    scatterv as scatterv,
)
from .api.comm import Cartcomm as Cartcomm, Comm as Comm, Distgraphcomm as Distgraphcomm, Graphcomm as Graphcomm
from .api.explain import explain as explain
from .api.neighbors import (
    neighbor_allgather as neighbor_allgather,
    neighbor_allgatherv as neighbor_allgatherv,
    neighbor_alltoall as neighbor_alltoall,
    neighbor_alltoallv as neighbor_alltoallv,
    neighbor_alltoallw as neighbor_alltoallw,
)
from .api.nonblocking import (
    allgather_init as allgather_init,
    allgatherv_init as allgatherv_init,
    allreduce_init as allreduce_init,
    alltoall_init as alltoall_init,
    alltoallv_init as alltoallv_init,
    alltoallw_init as alltoallw_init,
    barrier_init as barrier_init,
    bcast_init as bcast_init,
    exscan_init as exscan_init,
    gather_init as gather_init,
    gatherv_init as gatherv_init,
    iallgather as iallgather,
    iallgatherv as iallgatherv,
    iallreduce as iallreduce,
    ialltoall as ialltoall,
    ialltoallv as ialltoallv,
    ialltoallw as ialltoallw,
    ibarrier as ibarrier,
    ibcast as ibcast,
    iexscan as iexscan,
    igather as igather,
    igatherv as igatherv,
    ineighbor_allgather as ineighbor_allgather,
    ineighbor_allgatherv as ineighbor_allgatherv,
    ineighbor_alltoall as ineighbor_alltoall,
    ineighbor_alltoallv as ineighbor_alltoallv,
    ineighbor_alltoallw as ineighbor_alltoallw,
    ireduce as ireduce,
    ireduce_scatter as ireduce_scatter,
    iscan as iscan,
    iscatter as iscatter,
    iscatterv as iscatterv,
    neighbor_allgather_init as neighbor_allgather_init,
    neighbor_allgatherv_init as neighbor_allgatherv_init,
    neighbor_alltoall_init as neighbor_alltoall_init,
    neighbor_alltoallv_init as neighbor_alltoallv_init,
    neighbor_alltoallw_init as neighbor_alltoallw_init,
    reduce_init as reduce_init,
    reduce_scatter_init as reduce_scatter_init,
    scan_init as scan_init,
    scatter_init as scatter_init,
    scatterv_init as scatterv_init,
)
from .api.objects import (
    allgather_object as allgather_object,
    allreduce_object as allreduce_object,
    alltoall_object as alltoall_object,
    bcast_object as bcast_object,
    exscan_object as exscan_object,
    gather_object as gather_object,
    reduce_object as reduce_object,
    scan_object as scan_object,
    scatter_object as scatter_object,
)
from .api.pointtopoint import irecv as irecv, isend as isend, recv as recv, send as send, sendrecv as sendrecv
from .api.registered import empty as empty, free as free, zeros as zeros
from .api.requests import Persistent as Persistent
from .api.several_requests import (
    startall as startall,
    testall as testall,
    testany as testany,
    waitall as waitall,
    waitany as waitany,
)
from .api.sparse_exchange import sparse_exchange as sparse_exchange
from .arguments.ops import AVG as AVG, EXACT_SUM as EXACT_SUM
from .base.counters import traffic as traffic
from .base.errors import (
    CollectiveInterrupted as CollectiveInterrupted,
    CollectiveTimeout as CollectiveTimeout,
    MismatchError as MismatchError,
    RankFailed as RankFailed,
    RemoteError as RemoteError,
)
from .in_process import LocalComm as LocalComm, local as local
from .primitives.names import AlgorithmName as AlgorithmName, algorithms as algorithms
from .runtime.attach import attach as attach
from .runtime.gpu.select import select_device as select_device
from .runtime.progress_thread import progress_thread as progress_thread
from .runtime.requests import Request as Request

if not typing.TYPE_CHECKING:
    from . import simulate as simulate, synthesize as synthesize, trace as trace

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
