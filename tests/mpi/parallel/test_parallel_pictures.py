"""The pictures of a training step in the guide show the collectives of the drivers in their order."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import pycoll
from pycoll.parallel import SGD, DistributedDataParallel, FullyShardedDataParallel
from tests.mpi.native import RANK, WORLD
from tests.tracing import whole

pytest.importorskip("sphinx")
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs/_ext"))

import pictures

pytestmark = pytest.mark.mpi
GUIDE = Path(__file__).resolve().parents[3] / "docs/guide/training.md"
LAYERS = 4
# The kinds of spans in a trace, with the letters of the pictures; layers are units, and the last one is bucket 0.
LETTERS = {
    "forward of unit": "F",
    "backward of unit": "B",
    "gather unit": "P",
    "reduce unit": "G",
    "bucket": "G",
}


def pictured(number):
    """Return the events of a picture: in each unit of time, first the collectives that begin, then the computation."""
    text = GUIDE.read_text(encoding="utf-8")
    lanes = pictures.read("training.md", re.findall(r"```\{lanes\}\n(.*?)\n\n", text, re.DOTALL)[number].splitlines())
    return [word for moment in zip(*reversed(lanes.values())) for word in moment if word not in (".", "update")]


def recorded(directory):
    """Return the spans in the trace of this rank, as a picture has them, in the order in which they began."""
    WORLD.Barrier()
    found = []
    for event in sorted(whole(directory), key=lambda event: event.get("ts", 0)):
        kind, _, number = event["name"].rpartition(" ")
        if event["pid"] == RANK and event["ph"] in "Xb" and kind in LETTERS:
            found.append(f"{LETTERS[kind]}{LAYERS - 1 - int(number) if kind == 'bucket' else number}")
    return found


def parameters():
    return {str(layer): np.ones(3) for layer in range(LAYERS)}


def test_ddp(directory):
    ddp = DistributedDataParallel(parameters(), bucket_bytes=8)
    with pycoll.trace(directory):
        for _ in range(2):
            for layer in range(LAYERS):
                with pycoll.trace.phase(f"forward of unit {layer}"):
                    pass
            for layer in reversed(range(LAYERS)):
                with pycoll.trace.phase(f"backward of unit {layer}"):
                    pass
                ddp.ready(str(layer), np.ones(3))
            ddp.synchronize()
    assert recorded(directory) == 2 * pictured(0)


def test_fsdp(directory):
    fsdp = FullyShardedDataParallel(parameters(), [[str(layer)] for layer in range(LAYERS)])
    optimizer = SGD(fsdp.shards, lr=0.1)
    with pycoll.trace(directory):
        for _ in range(2):
            for layer in range(LAYERS):
                with fsdp.forward(layer):
                    pass
            for layer in reversed(range(LAYERS)):
                with fsdp.backward(layer):
                    fsdp.ready(str(layer), np.ones(3))
            optimizer.step(fsdp.synchronize())
    assert recorded(directory) == 2 * pictured(1)
