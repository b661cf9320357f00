"""Tests of torch that fail on the backend "pycoll", each with the reason."""

KNOWN: dict[str, str] = {}
