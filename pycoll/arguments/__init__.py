"""The buffers of the caller: recognised, checked, and converted to arrays, addresses and block positions."""
