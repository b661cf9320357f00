"""Derivatives of functions, to compare gradients with."""

import numpy as np

STEP = 1e-6


def slope(function, array, seed=3):
    """Return the slope of a function of an array along a random direction, and this direction.

    The function takes no arguments; it sees changes of the array, which are undone at the end.
    """
    direction = np.random.default_rng(seed).normal(size=array.shape)
    array += STEP * direction
    above = function()
    array -= 2 * STEP * direction
    below = function()
    array += STEP * direction
    return (above - below) / (2 * STEP), direction
