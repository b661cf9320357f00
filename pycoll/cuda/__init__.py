"""Buffers in a GPU's memory: CuPy's arrays, and all that has ``__cuda_array_interface__`` or DLPack.

CuPy is not imported before there is such a buffer.
"""
