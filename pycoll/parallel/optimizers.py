"""Optimizers, which update arrays in place from their gradients, by the formulas of PyTorch.

The arrays may be whole parameters or flat shards of them.  All operations are elementwise, so the result does not
depend on how parameters are sharded.  The real and imaginary parts of complex numbers are updated separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pycoll.trace import phase

from ..base.numbers import check_real
from .flat import Array, Arrays, check_arrays, check_gradient

BLOCK = 32 * 1024  # elements updated at once on the host, so that intermediate results stay in cache


class Optimizer:
    """The base class of SGD and Adam.

    Attributes
    ----------
    parameters : dict of str to array
        The arrays that `step` updates in place.
    state : dict of str to dict of str to array
        For each kind of state, for example ``"momentum"``, an array for each parameter, with its shape and dtype.
    steps : dict of str to int
        The number of updates of each parameter.
    """

    kept: tuple[str, ...] = ()

    def __init__(self, parameters: Arrays, **rates: float) -> None:
        self.parameters = check_arrays("parameters", parameters)
        for name, rate in rates.items():
            check_real(name, rate)
            if not rate >= 0:
                raise ValueError(f"{name}={rate} is negative")
        self.steps = dict.fromkeys(self.parameters, 0)
        self.state: dict[str, dict[str, Array]] = {
            kept: {name: np.zeros_like(array) for name, array in self.parameters.items()} for kept in self.kept
        }

    @phase("optimizer")
    def step(self, gradients: Arrays) -> None:
        """Update the parameters that have a gradient.

        Parameters
        ----------
        gradients : mapping of str to array
            Gradients by parameter name, with the shape of the parameter and in the same memory.

        Raises
        ------
        ValueError
            If a name is not a parameter, or a shape is wrong.
        TypeError
            If a gradient is not in the same memory as its parameter.
        """
        checked = {}
        for name, gradient in gradients.items():
            if name not in self.parameters:
                raise ValueError(f"gradients[{name!r}]: there is no such parameter")
            checked[name] = check_gradient(f"gradients[{name!r}]", gradient, self.parameters[name])
        for name, gradient in checked.items():
            self.steps[name] += 1
            update = self._update(self.steps[name])
            for arrays in _blocks(self.parameters[name], gradient, *(self.state[kept][name] for kept in self.kept)):
                parameter, block, *kept = arrays
                if block.dtype != parameter.dtype:
                    block = block.astype(parameter.dtype)
                if parameter.dtype.kind == "c":
                    parameter, block, *kept = map(_as_real, (parameter, block, *kept))
                update(parameter, block, *kept)

    def _update(self, steps: int) -> Callable[..., None]:
        """Return the function of (parameter, gradient, *state) for this step; it must not change the gradient."""
        raise NotImplementedError


def _blocks(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Yield blocks of arrays of one shape; whole arrays on a GPU, where each operation costs a kernel launch."""
    flat = [array.reshape(-1) for array in arrays]
    block = BLOCK if isinstance(arrays[0], np.ndarray) else max(1, flat[0].size)
    for start in range(0, flat[0].size, block):
        yield tuple(vector[start : start + block] for vector in flat)


def _as_real(vector: Array) -> Array:
    """Return real and imaginary parts side by side, as elements of their own; a view if the vector is contiguous."""
    vector = vector if vector.flags.c_contiguous else vector.copy()
    return vector.view(vector.real.dtype)


class SGD(Optimizer):
    """Stochastic gradient descent with momentum, Nesterov momentum and L2 weight decay, as ``torch.optim.SGD``.

    Parameters
    ----------
    parameters : mapping of str to array
        The arrays to update: C-contiguous, writeable, in one memory, with a floating-point or complex dtype.
    lr : float
        The learning rate.
    momentum, dampening : float
        The momentum factor, and the dampening of the momentum.
    nesterov : bool
        Use Nesterov momentum.
    weight_decay : float
        The factor of the L2 penalty.

    Raises
    ------
    TypeError, ValueError
        For invalid parameters, as in `DistributedDataParallel`.
    TypeError
        If a rate is not a number.
    ValueError
        If a rate is negative, or `nesterov` is used without momentum or with dampening.

    References
    ----------
    Sutskever et al., "On the importance of initialization and momentum in deep learning", 2013 (Nesterov momentum).
    https://proceedings.mlr.press/v28/sutskever13.html
    """

    def __init__(
        self,
        parameters: Arrays,
        lr: float = 1e-3,
        momentum: float = 0.0,
        *,
        dampening: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        for name, rate in (("momentum", momentum), ("dampening", dampening)):
            check_real(name, rate)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(f"nesterov=True needs momentum and no dampening, not {momentum=} and {dampening=}")
        self.lr, self.momentum, self.dampening = lr, momentum, dampening
        self.nesterov, self.weight_decay = nesterov, weight_decay
        self.kept = ("momentum",) if momentum else ()
        super().__init__(parameters, lr=lr, momentum=momentum, weight_decay=weight_decay)

    def _update(self, steps: int) -> Callable[..., None]:
        fresh = 1.0 if steps == 1 else 1.0 - self.dampening  # the first momentum is the gradient itself

        def update(parameter: Array, gradient: Array, momentum: Array | None = None) -> None:
            if self.weight_decay:
                gradient = gradient + self.weight_decay * parameter
            if momentum is not None:
                momentum *= self.momentum
                momentum += gradient if fresh == 1.0 else fresh * gradient
                gradient = gradient + self.momentum * momentum if self.nesterov else momentum
            parameter -= self.lr * gradient

        return update


class Adam(Optimizer):
    """Adam, as ``torch.optim.Adam``; weight decay is added to the gradient.

    Parameters
    ----------
    parameters : mapping of str to array
        The arrays to update: C-contiguous, writeable, in one memory, with a floating-point or complex dtype.
    lr : float
        The learning rate.
    betas : tuple of two floats
        The decay rates of the means of the gradient and of its square, with 0 <= beta < 1.
    eps : float
        A term added to the denominator.
    weight_decay : float, optional
        The weight decay, by default 0 for `Adam` and 0.01 for `AdamW`.

    Raises
    ------
    TypeError, ValueError
        For invalid parameters, as in `DistributedDataParallel`.
    TypeError
        If a rate is not a number, or `betas` are not two numbers.
    ValueError
        If a rate is negative, or `betas` are out of range.

    References
    ----------
    Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015. https://arxiv.org/abs/1412.6980
    """

    kept = ("mean", "square")
    decoupled, usual_decay = False, 0.0

    def __init__(
        self,
        parameters: Arrays,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | None = None,
    ) -> None:
        weight_decay = self.usual_decay if weight_decay is None else weight_decay
        if not isinstance(betas, Sequence) or len(betas) != 2:
            raise TypeError(f"betas={betas!r} is not a pair of numbers")
        for i, beta in enumerate(betas):
            check_real(f"betas[{i}]", beta)
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas={betas} are not both in 0 <= beta < 1")
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        super().__init__(parameters, lr=lr, eps=eps, weight_decay=weight_decay)

    def _update(self, steps: int) -> Callable[..., None]:
        first, second = self.betas
        rate = self.lr / (1 - first**steps)
        root = (1 - second**steps) ** 0.5

        def update(parameter: Array, gradient: Array, mean: Array, square: Array) -> None:
            if self.weight_decay and self.decoupled:
                parameter *= 1 - self.lr * self.weight_decay
            elif self.weight_decay:
                gradient = gradient + self.weight_decay * parameter
            mean *= first
            mean += (1 - first) * gradient
            square *= second
            square += (1 - second) * (gradient * gradient)
            scale = np.sqrt(square)
            scale /= root
            scale += self.eps
            parameter -= rate * (mean / scale)

        return update


class AdamW(Adam):
    """Adam with decoupled weight decay, 0.01 by default, as ``torch.optim.AdamW``.

    Parameters and errors are those of `Adam`.

    References
    ----------
    Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019. https://arxiv.org/abs/1711.05101
    """

    decoupled = True
    usual_decay = 1e-2


MakeOptimizer = Callable[[dict[str, Any]], Optimizer]
"""A function that makes an optimizer for parameters, for example ``functools.partial(SGD, lr=0.1)``."""
