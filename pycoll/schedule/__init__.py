"""Schedules: the moves, the registry of primitives and algorithms, the proof and the costs."""
