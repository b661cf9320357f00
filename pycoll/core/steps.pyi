import numpy as np

from ..compiler.program import Step

def has_loop(ufunc: np.ufunc, dtype: np.dtype) -> bool: ...

class Steps:
    def __init__(self, steps: list[Step]) -> None: ...
