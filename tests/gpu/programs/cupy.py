"""The stand-in for CuPy, for programs that have this folder in PYTHONPATH."""

import sys

from tests.gpu import standin

sys.modules["cupy"] = standin.module()
