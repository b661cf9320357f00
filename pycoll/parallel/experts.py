"""Expert parallelism: a mixture of experts, with some of the experts on each rank."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

import pycoll

from ..base.numbers import check_integer, check_positive, check_real
from .flat import beside, module_of
from .tensor import block

Array = Any


class ExpertParallel:
    """Dispatch each token to the experts that a router chooses for it, and combine what they return.

    Each expert is a network ``relu(x @ up) @ down``.  The output of a token is the sum over its `top_k` experts,
    weighted with their probabilities; with several experts, these are divided by their sum.  An expert has a
    capacity, the number of tokens that it takes from each rank.  Tokens above it get nothing from this expert: first
    choices come before second choices, and earlier tokens before later ones.

    Parameters
    ----------
    router : array of shape (width, experts)
        The weights of the router, which all ranks have.
    up : array of shape (experts, width, hidden)
        The first weights of all experts, the same on all ranks.
    down : array of shape (experts, hidden, width)
        The second weights.
    top_k : int, default 1
        The number of experts for each token.
    capacity : float, default 1.25
        The capacity factor: the capacity, divided by the number of tokens if all experts had equally many.
    balance : float, default 0.01
        The factor of the auxiliary loss, which keeps the experts equally busy.  `backward` adds its gradient.
    groups : int, default 1
        The number of groups of tokens of each rank, for each of which the capacity and the auxiliary loss are computed.
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, COMM_WORLD by default.

    Attributes
    ----------
    parameters : dict of str to array
        The router, and the experts of this rank.
    gradients : dict of str to array
        Sums of their gradients, those of experts over all ranks; set them to zero before each step.
    divided : dict of str to int
        The axes along which parameters are divided.

    Raises
    ------
    ValueError
        If the number of experts is not a multiple of the number of ranks, `top_k` is not between 1 and the number of
        experts, or `capacity` is not positive.

    Notes
    -----
    Sent in `forward`: 8 * E * (p - 1) // p + 2 * k * (p - 1) * Z // p.
    Sent in `backward`: 2 * k * (p - 1) * Z // p.
    E is the number of experts, k is `top_k`, and Z is the size of the tokens of a rank, if all experts get equally
    many.
    The numbers of tokens travel first, then the tokens.

    References
    ----------
    Lepikhin et al., "GShard", ICLR 2021, on capacity and groups. https://arxiv.org/abs/2006.16668

    Fedus et al., "Switch Transformers", 2021, on the auxiliary loss. https://arxiv.org/abs/2101.03961
    """

    def __init__(
        self,
        router: Array,
        up: Array,
        down: Array,
        *,
        top_k: int = 1,
        capacity: float = 1.25,
        balance: float = 0.01,
        groups: int = 1,
        comm: MPI.Comm | None = None,
    ) -> None:
        self.comm = MPI.COMM_WORLD if comm is None else comm
        self.experts, ranks = router.shape[1], self.comm.size
        if self.experts % ranks:
            raise ValueError(
                f"{self.experts} experts cannot be divided over {ranks} ranks; "
                f"change the number of experts to a multiple of {ranks}, or use fewer ranks"
            )
        check_integer("top_k", top_k, "number of experts for each row")
        check_positive("groups", groups, "number of groups")
        check_real("capacity", capacity)
        check_real("balance", balance)
        if not 1 <= top_k <= self.experts:
            raise ValueError(f"top_k={top_k} is not between 1 and {self.experts}, the number of experts")
        if not capacity > 0:
            raise ValueError(f"capacity={capacity} is not positive")
        self.top_k, self.capacity, self.balance, self.groups = top_k, capacity, balance, groups
        self.parameters = {"router": router.copy(), "up": block(up, self.comm), "down": block(down, self.comm)}
        self.gradients = {name: np.zeros_like(array) for name, array in self.parameters.items()}
        self.divided = {"up": 0, "down": 0}

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Return the weighted outputs of the experts, and what `backward` needs.

        Parameters
        ----------
        x : array of shape (tokens, width)
            The tokens of this rank; ranks may have different numbers of tokens.

        Returns
        -------
        array of shape (tokens, width)
            The outputs.
        object
            What `backward` needs.  Its attribute `loss` is the auxiliary loss, multiplied by `balance`.

        Raises
        ------
        ValueError
            If the number of tokens is not a multiple of `groups`.
        """
        routing = self._routed(x)
        exchange = _Exchange(self.comm, np.bincount(routing.expert, minlength=self.experts))
        given = exchange.dispatch(x[routing.row])
        hidden = [np.maximum(rows @ up, 0) for rows, up in zip(given, self.parameters["up"], strict=True)]
        made = [rows @ down for rows, down in zip(hidden, self.parameters["down"], strict=True)]
        returned = exchange.combine(made)
        y = np.zeros_like(x)
        module_of(x).add.at(y, routing.row, routing.weight[:, None] * returned)
        return y, _Saved(
            x, routing, exchange, given, hidden, returned, float((routing.aux_gradient * routing.probability).sum())
        )

    def backward(self, dy: Array, saved: Any) -> Array:
        """Add to the gradients; return the gradient of x."""
        x, routing, exchange, given, hidden, returned, _ = saved
        of_row = dy[routing.row]
        dgiven = []
        for expert, dmade in enumerate(exchange.dispatch(routing.weight[:, None] * of_row)):
            self.gradients["down"][expert] += hidden[expert].T @ dmade
            dhidden = dmade @ self.parameters["down"][expert].T * (hidden[expert] > 0)
            self.gradients["up"][expert] += given[expert].T @ dhidden
            dgiven.append(dhidden @ self.parameters["up"][expert].T)
        dscores = routing.backward((of_row * returned).sum(1))
        self.gradients["router"] += x.T @ dscores
        dx = dscores @ self.parameters["router"].T
        module_of(x).add.at(dx, routing.row, exchange.combine(dgiven))
        return dx.astype(x.dtype, copy=False)

    def _routed(self, x: Array) -> _Routing:
        if len(x) % self.groups:
            raise ValueError(f"{len(x)} tokens cannot be divided into {self.groups} groups of equal size")
        scores = x @ self.parameters["router"]
        probability = np.exp(scores - scores.max(1, keepdims=True))
        probability /= probability.sum(1, keepdims=True)
        best = np.argsort(-probability, axis=1, kind="stable")[:, : self.top_k]
        chosen = best if isinstance(best, np.ndarray) else best.get()  # the counts must be known to the host
        parts = np.split(chosen, self.groups)
        rows = max(1, len(x) // self.groups)
        most = math.ceil(self.capacity * self.top_k * rows / self.experts)
        taken = np.concatenate([within_capacity(part, most) for part in parts])
        row, choice = np.nonzero(taken)
        order = np.argsort(chosen[row, choice], kind="stable")
        picked = np.take_along_axis(probability, best, 1)
        total = picked.sum(1, keepdims=True) if self.top_k > 1 else np.ones_like(picked)
        share = np.stack([np.bincount(part[:, 0], minlength=self.experts) / rows for part in parts])
        aux_gradient = np.repeat(
            self.balance * self.experts * share / (self.groups * rows), len(x) // self.groups, axis=0
        )
        row, choice = row[order], choice[order]
        return _Routing(
            *(chosen[row, choice], beside(row, x), beside(choice, x), best),
            *(probability, picked / total, total, beside(aux_gradient.astype(x.dtype), x)),
        )


class _Routing(NamedTuple):
    """Which tokens go to which experts, sorted by expert."""

    expert: np.ndarray  # in host memory
    row: Array
    choice: Array  # 0 for the first choice of the token
    chosen: Array  # the experts of each token
    probability: Array  # of each expert, for each token
    weights: Array  # of each choice of each token
    total: Array  # what the probabilities of the choices were divided by
    aux_gradient: Array  # the gradient of the auxiliary loss with respect to the probabilities

    @property
    def weight(self) -> Array:
        return self.weights[self.row, self.choice]

    def backward(self, dweight: Array) -> Array:
        """Return the gradient of the scores, given the gradient of `weight`."""
        dpicked = np.zeros_like(self.weights)
        dpicked[self.row, self.choice] = dweight
        if dpicked.shape[1] > 1:
            dpicked = (dpicked - (dpicked * self.weights).sum(1, keepdims=True)) / self.total
        dprobability = self.aux_gradient.copy()
        rows = module_of(dpicked).arange(len(dpicked))[:, None]
        dprobability[rows, self.chosen] += dpicked  # the choices of a row are different
        return self.probability * (dprobability - (dprobability * self.probability).sum(1, keepdims=True))


class _Exchange:
    """The exchange of tokens between their ranks and the ranks of their experts.

    `counts` are the numbers of tokens of this rank for each expert.
    """

    def __init__(self, comm: MPI.Comm, counts: np.ndarray) -> None:
        self.comm = comm
        here = counts.reshape(comm.size, -1).astype(np.int64)  # by rank and expert of that rank
        self.there = pycoll.alltoall(here, np.empty_like(here), comm=comm)  # by rank, for the experts of this rank
        self.sent, self.received = here.sum(1), self.there.sum(1)

    def dispatch(self, rows: Array) -> list[Array]:
        """Send tokens, sorted by expert; return those for each expert of this rank, in the order of ranks."""
        found = self._exchanged(rows, self.sent, self.received)
        pieces = _cut(found, self.there.reshape(-1))
        experts = self.there.shape[1]
        return [np.concatenate(pieces[expert::experts]) for expert in range(experts)]

    def combine(self, results: list[Array]) -> Array:
        """Send results back; return those of the tokens of this rank, sorted by expert."""
        pieces = [_cut(one, counts) for one, counts in zip(results, self.there.T, strict=True)]
        sorted_by_rank = np.concatenate([piece for of_rank in zip(*pieces, strict=True) for piece in of_rank])
        return self._exchanged(sorted_by_rank, self.received, self.sent)

    def _exchanged(self, rows: Array, sent: np.ndarray, received: np.ndarray) -> Array:
        width = rows.shape[1]
        found = np.empty_like(rows, shape=(int(received.sum()), width))
        pycoll.alltoallv([rows, sent * width], [found, received * width], comm=self.comm)
        return found


class _Saved(NamedTuple):
    x: Array
    routing: _Routing
    exchange: _Exchange
    given: list[Array]
    hidden: list[Array]
    returned: Array
    loss: float


def _cut(rows: Array, counts: np.ndarray) -> list[Array]:
    """Cut rows into pieces of these lengths."""
    return [rows[start:end] for start, end in pairwise(accumulate(counts.tolist(), initial=0))]


def within_capacity(chosen: np.ndarray, most: int) -> np.ndarray:
    """Mask of the tokens that fit into their expert's capacity."""
    flat = chosen.T.reshape(-1)  # all first choices, then all second choices
    order = np.argsort(flat, kind="stable")
    starts = np.searchsorted(flat[order], flat[order])
    order_in_expert = np.empty_like(order)
    order_in_expert[order] = np.arange(len(order)) - starts
    return order_in_expert.reshape(chosen.shape[::-1]).T < most
