"""Random numbers that are the same in each run."""

import random

import pytest


@pytest.fixture
def draw():
    return random.Random(1)
