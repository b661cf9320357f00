"""Which algorithm a call gets: what the user chose, what was measured, or the rules."""
