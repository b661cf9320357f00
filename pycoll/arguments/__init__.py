"""The buffers of the caller: recognized, checked, and converted to arrays, addresses and block positions."""
