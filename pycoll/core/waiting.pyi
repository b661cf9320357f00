class Waiting:
    failed: bool
