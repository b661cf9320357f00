"""Modules that every layer uses: settings, errors, counters, files, figures and command lines."""
