"""The pictures of a training step in the guide show the collectives of the drivers in their order."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from pycoll.parallel import SGD, DistributedDataParallel, FullyShardedDataParallel
from pycoll.parallel.buckets import Bucket
from pycoll.parallel.units import Unit

pytest.importorskip("sphinx")
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs/_ext"))

import pictures

pytestmark = pytest.mark.mpi
GUIDE = Path(__file__).resolve().parents[3] / "docs/guide/training.md"
LAYERS = 4


def pictured(number):
    """Return the events of a picture: in each unit of time, first the collectives that begin, then the computation."""
    text = GUIDE.read_text(encoding="utf-8")
    lanes = pictures.read("training.md", re.findall(r"```\{lanes\}\n(.*?)\n\n", text, re.DOTALL)[number].splitlines())
    return [word for moment in zip(*reversed(lanes.values())) for word in moment if word not in (".", "update")]


@pytest.fixture
def events(monkeypatch):
    """The events of the drivers."""
    found = []

    def recorded(owner, method, name_of):
        original = getattr(owner, method)

        def start(self, *arguments):
            found.append(name_of(self))
            return original(self, *arguments)

        monkeypatch.setattr(owner, method, start)

    recorded(Bucket, "start", lambda bucket: f"G{next(iter(bucket.views))}")
    recorded(Unit, "start_gathering", lambda unit: f"P{unit.names[0]}")
    recorded(Unit, "start_reducing", lambda unit: f"G{unit.names[0]}")
    return found


def parameters():
    return {str(layer): np.ones(3) for layer in range(LAYERS)}


def test_ddp(events):
    ddp = DistributedDataParallel(parameters(), bucket_bytes=8)
    for _ in range(2):
        events[:] = [f"F{layer}" for layer in range(LAYERS)]
        for layer in reversed(range(LAYERS)):
            events.append(f"B{layer}")
            ddp.ready(str(layer), np.ones(3))
        ddp.synchronize()
        assert events == pictured(0)


def test_fsdp(events):
    fsdp = FullyShardedDataParallel(parameters(), [[str(layer)] for layer in range(LAYERS)])
    optimizer = SGD(fsdp.shards, lr=0.1)
    for _ in range(2):
        events.clear()
        for layer in range(LAYERS):
            with fsdp.forward(layer):
                events.append(f"F{layer}")
        for layer in reversed(range(LAYERS)):
            with fsdp.backward(layer):
                events.append(f"B{layer}")
                fsdp.ready(str(layer), np.ones(3))
        optimizer.step(fsdp.synchronize())
        assert events == pictured(1)
