"""Import the file of a user and a file of the package twice."""

import importlib

import allreduce

import pycoll.primitives.barrier

importlib.reload(allreduce)
importlib.reload(pycoll.primitives.barrier)
