"""Describe GPT-3 for the simulation of a training step, and simulate a step on 16 GPUs.

Run it with ``python examples/training_step.py``; no MPI is needed.  With the name of a file, it also writes a model:
``python examples/training_step.py examples/models/gpt3-175b.json``.

A matrix product of a micro-batch of b sequences of s tokens takes 2 operations for each weight and token.  A layer of
width h has 12*h*h weights, and attention takes 4*b*s*s*h operations more: 24*b*s*h*h + 4*b*s*s*h in a forward pass, and
twice as many in a backward pass (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", SC 2021, arXiv 2104.04473).  The layer sums its output over the tensor-parallel ranks twice in each pass.
"""

import sys

from pycoll.simulate.training import Groups, How, Layer, Model, simulate_step, write

PEAK = 989e12  # dense bfloat16 operations per second in the data sheet of an NVIDIA H100 SXM
SPEED = PEAK / 2  # an assumption, not a measurement


def gpt(name: str, layers: int, width: int, tokens: int = 2048, vocabulary: int = 51200, batch: int = 1) -> Model:
    """Return a GPT; the numbers of GPT-3 are in Brown et al., "Language models are few-shot learners", 2020."""
    activation = 2 * batch * tokens * width  # bytes
    block = 24 * batch * tokens * width**2 + 4 * batch * tokens**2 * width
    common = {"activation": activation, "tensor_allreduces": 2, "dtype": "bfloat16"}
    return Model(
        name=name,
        micro_batch=batch,
        speed=SPEED,
        peak=PEAK,
        layers=(
            Layer("embedding", parameters=vocabulary * width, **common | {"tensor_allreduces": 1}),
            Layer("block", parameters=12 * width**2, flops=block, repeat=layers, **common),
            Layer(
                "head",
                parameters=vocabulary * width,
                flops=2 * batch * tokens * width * vocabulary,
                **common | {"tensor_allreduces": 1},
            ),
        ),
    )


if len(sys.argv) > 1:
    write(gpt("GPT-3 175B", layers=96, width=12288), sys.argv[1])
small = gpt("GPT-3 6.7B", layers=32, width=4096)
steps = []
for mesh in ({"dp": 16}, {"fsdp": 16}, {"dp": 4, "tp": 4}, {"dp": 4, "pp": 4}):
    replicas = mesh.get("dp", 1) * mesh.get("fsdp", 1)
    steps.append(step := simulate_step(small, Groups(mesh, ranks_per_host=8), How(micro_batches=16 // replicas)))
    print(f"{mesh}: {step.time:.3f} s for {step.samples} samples, {step.utilization:.0%} of the peak")
# all meshes compute the same, at half of the peak; communication and bubbles take the remaining time
assert len({step.samples for step in steps}) == 1
assert all(abs(step.mean("computing") / step.time - 2 * step.utilization) < 1e-9 for step in steps)
