"""Selects the algorithm of a call: by the choice of the user, by measurements, or by rules."""
