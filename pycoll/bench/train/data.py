"""Training data: the handwritten digits of scikit-learn, or random numbers for timing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from mpi4py import MPI

import pycoll

CLASSES = 10


class Data(NamedTuple):
    """Images of shape (samples, features), and their digits of shape (samples,)."""

    images: np.ndarray
    digits: np.ndarray

    def part(self, indices: np.ndarray) -> Data:
        """Return the samples at these indices."""
        return Data(self.images[indices], self.digits[indices])


def digits(dtype: np.dtype, comm: MPI.Intracomm, test_share: float = 0.2) -> tuple[Data, Data]:
    """Return shuffled training and test data on all ranks, scaled to 0..1."""
    images, labels = np.empty((1797, 64)), np.empty(1797, int)
    if comm.rank == 0:  # importing scikit-learn takes a second
        from sklearn.datasets import load_digits

        order = np.random.default_rng(0).permutation(len(labels))
        images[:], labels[:] = (array[order] for array in load_digits(return_X_y=True))
        images /= 16.0
    pycoll.bcast(images, comm=comm)
    pycoll.bcast(labels, comm=comm)
    images = images.astype(dtype)
    cut = int(len(labels) * (1 - test_share))
    return Data(images[:cut], labels[:cut]), Data(images[cut:], labels[cut:])


def synthetic(dtype: np.dtype, samples: int, features: int) -> tuple[Data, Data]:
    """Return random images with random labels; training and test data are the same."""
    random = np.random.default_rng(0)
    data = Data(random.random((samples, features)).astype(dtype), random.integers(0, CLASSES, samples))
    return data, data


def batches(samples: int, batch: int, epoch: int, seed: int) -> list[np.ndarray]:
    """Return the indices of each global batch of an epoch, the same on all ranks."""
    order = np.random.default_rng([seed, epoch]).permutation(samples)
    return [order[start : start + batch] for start in range(0, samples, batch)]
