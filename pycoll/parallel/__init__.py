"""Training on several ranks, for models of NumPy or CuPy arrays.

Drivers for data-parallel training:

- `ParameterServer`: workers push gradients to servers, synchronously, asynchronously, or with bounded staleness.
- `DistributedDataParallel`: each rank has a replica; gradients are averaged in buckets during the backward pass.
- `FullyShardedDataParallel`: parameters, gradients and optimizer state are sharded; parameters are gathered by unit.
- `LocalSGD`: each rank trains on its own for several steps; then parameters are averaged.

`Mesh` arranges ranks in a grid, whose axes are the communicators of drivers and layers.

- `ColumnParallelLinear`, `RowParallelLinear`, `VocabularyParallelEmbedding`: layers with weights divided over ranks.
- `UlyssesAttention`, `RingAttention`: attention of sequences that are divided over ranks.
- `ExpertParallel`: a mixture of experts, which are divided over ranks.
- `Pipeline`: layers divided over ranks, with micro-batches.

`elastic.run` trains so that the other ranks go on when ranks fail.

The drivers communicate only through the public functions of pycoll.  For checks of arrays, GPU streams, errors and
interruptions, they use the layers below.
"""

from ..base import mpi as _mpi  # noqa: F401  # first, because it says if there is no MPI library

# isort: split
from . import elastic
from .attention import Attention, RingAttention, UlyssesAttention
from .buckets import Bucket, average_gradients
from .checkpoint import load, save
from .clipping import clip_by_global_norm
from .compression import Cast, TopK, exact_average
from .ddp import DistributedDataParallel
from .divided import DividedParameters
from .experts import ExpertParallel
from .flat import Piece
from .fsdp import FullyShardedDataParallel
from .local_sgd import LocalSGD
from .mesh import Mesh
from .optimizers import SGD, Adam, AdamW, Optimizer
from .pipeline import Pipeline
from .ps.parameter_server import ParameterServer
from .quantized import Quantize, quantized_allreduce
from .tensor import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabularyParallelEmbedding,
    enter_region,
    leave_region,
    vocabulary_parallel_cross_entropy,
)

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Attention",
    "Bucket",
    "Cast",
    "ColumnParallelLinear",
    "DistributedDataParallel",
    "DividedParameters",
    "ExpertParallel",
    "FullyShardedDataParallel",
    "LocalSGD",
    "Mesh",
    "Optimizer",
    "ParameterServer",
    "Piece",
    "Pipeline",
    "Quantize",
    "RingAttention",
    "RowParallelLinear",
    "TopK",
    "UlyssesAttention",
    "VocabularyParallelEmbedding",
    "average_gradients",
    "clip_by_global_norm",
    "elastic",
    "enter_region",
    "exact_average",
    "leave_region",
    "load",
    "quantized_allreduce",
    "save",
    "vocabulary_parallel_cross_entropy",
]
