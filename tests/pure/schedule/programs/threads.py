"""Threads ask for the algorithms of a primitive while its file is imported, which is made slow."""

import threading
import time

from pycoll.schedule import registry

found: list[int] = []
before = registry.parameters_of
registry.parameters_of = lambda generator: time.sleep(5e-3) or before(generator)
threads = [threading.Thread(target=lambda: found.append(len(registry.algorithms_of("alltoall")))) for _ in range(20)]
for thread in threads:
    thread.start()
    time.sleep(8e-3)
for thread in threads:
    thread.join()
assert len(found) == 20 and len(set(found)) == 1, found
