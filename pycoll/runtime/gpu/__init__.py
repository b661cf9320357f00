"""Collectives on buffers in GPU memory."""
