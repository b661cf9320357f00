"""What is learned: scikit-learn's handwritten digits, or random numbers for timing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits

CLASSES = 10


class Data(NamedTuple):
    """Images as rows of numbers, and the digits they show."""

    images: np.ndarray
    digits: np.ndarray

    def part(self, places: np.ndarray) -> Data:
        """Some of the samples."""
        return Data(self.images[places], self.digits[places])


def digits(dtype: np.dtype, test_share: float = 0.2) -> tuple[Data, Data]:
    """The digits, shuffled alike on all ranks: training and test data, numbers in 0..1."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = (images[order] / 16.0).astype(dtype), labels[order]
    cut = int(len(labels) * (1 - test_share))
    return Data(images[:cut], labels[:cut]), Data(images[cut:], labels[cut:])


def synthetic(dtype: np.dtype, samples: int, features: int) -> tuple[Data, Data]:
    """Random images with random labels, as training and as test data."""
    random = np.random.default_rng(0)
    data = Data(random.random((samples, features)).astype(dtype), random.integers(0, CLASSES, samples))
    return data, data


def batches(samples: int, batch: int, epoch: int, seed: int) -> list[np.ndarray]:
    """The global batches of an epoch, the same on all ranks."""
    order = np.random.default_rng([seed, epoch]).permutation(samples)
    return [order[start : start + batch] for start in range(0, samples, batch)]
