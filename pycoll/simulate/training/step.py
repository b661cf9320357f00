"""The simulation of a training step: one rank of each stage of a pipeline, and the times of their collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...schedule.pipeline import check
from .groups import GroupCollective, Groups
from .model import Model, divided
from .stage import Arrivals, How, Stage

MOST_PASSES = 1 << 22  # of a rank, in a step


@dataclass(frozen=True)
class Step:
    """A simulated step.

    Attributes
    ----------
    time : float
        Its seconds.
    stages : list of Stage
        One rank of each stage.
    collectives : list of GroupCollective
        The times of all kinds of collectives and messages.
    samples : int
        The number of samples.
    utilization : float
        The share of the peak of all devices that the operations of the model take; 0 if the model does not say.
    """

    time: float
    stages: list[Stage]
    collectives: list[GroupCollective]
    samples: int
    utilization: float

    def mean(self, kind: str) -> float:
        """Return the mean seconds of a kind over the stages."""
        return sum(stage.seconds[kind] for stage in self.stages) / len(self.stages)

    @property
    def bubble(self) -> float:
        """The mean seconds in which a stage waits for work of other stages."""
        return self.time - sum(map(self.mean, self.stages[0].seconds))


def simulate_step(model: Model, groups: Groups, how: How | None = None) -> Step:
    """Simulate a training step.

    Parameters
    ----------
    model : Model
        The model.
    groups : Groups
        The mesh of ranks on a network.
    how : How, optional
        The schedule, the buckets and the number of micro-batches.

    Returns
    -------
    Step
        The times.

    Raises
    ------
    ValueError
        If there are fewer layers than stages, the number of tensor-parallel ranks does not divide a layer, the schedule
        does not fit the numbers, or the step takes no time.

    Notes
    -----
    All groups of an axis are equal and run their collectives at the same time; there is no jitter.  Collectives of
    different axes do not slow each other down.  The layers of a model are divided so that the slowest stage takes as
    little time as possible.  Buckets are averaged after the last micro-batch.  With the axis `fsdp`, a layer is
    gathered for each pass, one layer in advance, and its gradients are reduced and scattered after each backward pass.
    """
    how = How() if how is None else how
    count = groups.size("pp")
    check(how.schedule, count, how.micro_batches, how.chunks)
    if how.bucket < 1:
        raise ValueError(f"bucket={how.bucket} is not a positive number of bytes")
    passes = how.micro_batches * sum(layer.repeat for layer in model.layers)
    if passes > MOST_PASSES:
        raise ValueError(
            f"{how.micro_batches} micro-batches of all layers are {passes} passes, more than {MOST_PASSES}"
        )
    layers, tensor = model.expanded(), groups.size("tp")
    for layer in layers:
        if layer.tensor_allreduces and layer.parameters % tensor:
            raise ValueError(f"tp={tensor} does not divide the {layer.parameters} parameters of layer {layer.name!r}")
    chunks = divided(layers, count * how.chunks)
    arrivals: Arrivals = {}
    outputs = [chunk[-1].activation for chunk in chunks]
    stages = [Stage(number, chunks[number::count], outputs, groups, how, arrivals) for number in range(count)]
    _run(stages, arrivals)
    for stage in stages:
        stage.finish(model.optimizer)
    time, replicas = max(stage.end for stage in stages), groups.size("dp") * groups.size("fsdp")
    if not time:
        raise ValueError(f"a step of model {model.name!r} takes no time: no layer has seconds, flops or messages")
    operations = model.flops * how.micro_batches * replicas
    return Step(
        time=time,
        stages=stages,
        collectives=list(groups.found.values()),
        samples=model.micro_batch * how.micro_batches * replicas,
        utilization=operations / (groups.ranks * model.peak * time) if model.peak else 0.0,
    )


def _run(stages: Sequence[Stage], arrivals: Arrivals) -> None:
    """Let each stage do its moves, as far as messages have arrived, until all are done."""
    going = {stage.number: stage.moves() for stage in stages}
    awaited = {number: next(moves, None) for number, moves in going.items()}
    while going:
        for number, moves in list(going.items()):
            while (move := awaited[number]) and (number, move) in arrivals:
                awaited[number] = next(moves, None)
            if awaited[number] is None:
                del going[number]
