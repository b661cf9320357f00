"""The version of pycoll."""

__version__ = "0.1.0"
