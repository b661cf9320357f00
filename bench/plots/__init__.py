"""Plots of result files."""
