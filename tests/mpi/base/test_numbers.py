"""Settings of drivers that are no numbers."""

from functools import partial

import numpy as np
import pytest

import pycoll
from pycoll.base.settings import configure
from pycoll.parallel import (
    SGD,
    ExpertParallel,
    LocalSGD,
    ParameterServer,
    Pipeline,
    Quantize,
    TopK,
    clip_by_global_norm,
    elastic,
)
from tests.mpi.native import SIZE

pytestmark = pytest.mark.mpi


def test_settings_that_are_no_numbers():
    parameters, some = {"a": np.ones(3)}, np.ones((SIZE, SIZE))
    for function, name, kind in (
        (partial(LocalSGD, parameters), "every", "an integer"),
        (partial(ParameterServer, parameters, optimizer=SGD), "staleness", "an integer"),
        (partial(ParameterServer, parameters, optimizer=SGD), "servers", "an integer"),
        (partial(Pipeline, [], None), "micro_batches", "an integer"),
        (partial(ExpertParallel, some, some, some), "top_k", "an integer"),
        (partial(ExpertParallel, some, some, some), "groups", "an integer"),
        (partial(ExpertParallel, some, some, some), "capacity", "a number"),
        (partial(ExpertParallel, some, some, some), "balance", "a number"),
        (partial(elastic.State, None), "every", "an integer"),
        (partial(elastic.State, None), "size", "an integer"),
        (Quantize, "block", "an integer"),
        (TopK, "ratio", "a number"),
        (partial(clip_by_global_norm, parameters), "max_norm", "a number"),
        (pycoll.progress_thread, "interval", "a number"),
        (configure, "segment", "an integer"),
    ):
        with pytest.raises(TypeError, match=f"^{name}='2' is not {kind}"):
            function(**{name: "2"})
