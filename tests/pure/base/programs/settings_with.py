"""Print the error of each environment variable; the arguments are names and values."""

import importlib
import os
import sys

for name, value in zip(sys.argv[1::2], sys.argv[2::2]):
    os.environ[name] = value
    sys.modules.pop("pycoll.base.settings", None)
    try:
        importlib.import_module("pycoll.base.settings")
        print("no error")
    except ValueError as error:
        print(error)
    del os.environ[name]
