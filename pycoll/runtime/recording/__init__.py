"""Records the events of a rank for traces."""
