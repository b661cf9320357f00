"""The buffers of the caller: recognised, checked, and turned into arrays, addresses and places of blocks."""
