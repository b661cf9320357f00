"""The public functions and classes: collectives, requests, the communicator and messages."""
