"""Random collectives of `pycoll.Comm` beside those of mpi4py: ``mpiexec -n 3 python -m tests.soak --minutes 20``.

Each call is made by mpi4py first, and then by pycoll, with arguments in another form.  Communicators are made and
freed, with topologies and without; calls are blocking, nonblocking or persistent, and some name an algorithm; threads
call on communicators of their own; a signal handler raises exceptions at random moments; processes fork.  Ranks draw
what they must agree on from the same random numbers (`shared`), and the rest, for example the forms of their
arguments, from their own (`own`).

Ten times, all communicators are freed, and the memory and the files in use are counted; they must not grow.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import gc
import mmap
import os
import random
import signal
import sys
import threading
import time

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.selection.choices import primitive_called

from .soak_case import Case

WORLD = MPI.COMM_WORLD
PATIENCE = 300.0  # seconds for a phase
COUNTS = 10  # of what is in use
LIBC, M_ARENA_MAX = ctypes.CDLL(None), -8
IN_USE = "MiB of memory", "open files", "mapped areas of pycoll", "files in /dev/shm"


class Interrupted(Exception):
    """Raised by the signal handler."""


class Interruptions:
    """Interrupts blocking calls of the main thread."""

    def __init__(self) -> None:
        self.armed, self.raised = False, 0
        signal.signal(signal.SIGALRM, self._handle)
        sys.unraisablehook = self._ignored

    def _handle(self, number, frame) -> None:
        if self.armed:
            self.armed = False
            self.raised += 1
            raise Interrupted

    def _ignored(self, unraisable) -> None:
        """Do not expect an exception that Python itself ignores, for example in the callback of a weak reference."""
        if isinstance(unraisable.exc_value, Interrupted):
            self.raised -= 1
        else:
            sys.__unraisablehook__(unraisable)

    def call(self, function, is_untouched, delay: float) -> None:
        """Make a call, which a signal interrupts after `delay` seconds; make it again if it had not begun."""
        before, caught = self.raised, 0
        signal.setitimer(signal.ITIMER_REAL, delay)
        while True:
            try:
                self.armed = True
                if caught == 0 or is_untouched():
                    function()
                self.armed = False
                break
            except Interrupted:
                caught += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert self.raised - before == caught, "an exception of the signal handler was lost"


class Stream:
    """Calls on a communicator of pycoll, and on one of mpi4py with the same ranks."""

    def __init__(self, comm, seed: int) -> None:
        self.ours, self.theirs = pycoll.Comm(comm), comm.Dup()
        self.rank, self.size = comm.rank, comm.size
        self.shared, self.own = random.Random(seed), random.Random(f"{seed} {WORLD.rank}")
        self.pending: list = []
        self.theirs.scan(0)  # mpi4py duplicates a communicator at the first one, with the GIL: threads would deadlock

    def free(self) -> None:
        """Complete all calls, and free both communicators."""
        self.complete(0)
        self.ours.Free()
        self.theirs.Free()

    def complete(self, most: int) -> None:
        """Complete nonblocking calls until not more than `most` are in flight."""
        while len(self.pending) > most:
            request, check, *kept = self.pending.pop(
                (self.own if most == 0 else self.shared).randrange(len(self.pending))
            )
            if self.own.random() < 0.3:
                while not request.Test():
                    pass
            else:
                request.Wait()
            check()
            del kept

    def call(self, interruptions: Interruptions | None = None) -> None:
        """Draw one call, make it with both libraries, and compare the results."""
        if self.shared.random() < 0.15:
            self._call_with_objects()
            return
        case = Case(self.shared, self.own, self.rank, self.size)
        case.expected = case.run(self.theirs, case.name, plain=True)
        way = self.shared.random()
        algorithm = self._algorithm(case) if self.shared.random() < 0.08 else None
        if case.in_place and case.name in ("Alltoallv", "Alltoallw"):
            way = 1.0  # Ialltoallw of Open MPI may not complete in place
        if way < 0.1:
            self.complete(self.shared.randrange(4))
            request, *kept = case.begin(self.ours, f"I{case.name.lower()}", algorithm)
            self.pending.append((request, case.check, *kept))
        elif way < 0.13:
            request, *kept = case.begin(self.ours, f"{case.name}_init", algorithm)
            for _ in range(self.shared.randrange(1, 3)):
                case.reset()
                request.Start()
                request.Wait()
                case.check()
            request.Free()
        else:
            if interruptions and self.own.random() < 0.2 and case.changes():
                delay = self.own.choice([1e-5, 1e-4, 1e-3]) * self.own.uniform(0.1, 2)
                arguments = case.arguments(plain=False)
                method = getattr(self.ours, case.name)
                named = {"algorithm": algorithm} if algorithm else {}
                interruptions.call(lambda: method(*arguments, **named), case.is_untouched, delay)
            else:
                case.run(self.ours, case.name, plain=False, algorithm=algorithm)
            case.check()
        if self.shared.random() < 0.02:
            self.complete(0)

    def _call_with_objects(self) -> None:
        """Make a call with Python objects, which differ between ranks."""
        reductions, rooted_ones = ["reduce", "allreduce", "scan"], ["bcast", "gather", "scatter", "reduce"]
        name = self.shared.choice([*reductions, *rooted_ones, "allgather", "alltoall"])
        root, op = self.shared.randrange(self.size), self.shared.choice([MPI.SUM, MPI.PROD, lambda left, right: left])
        drawn = _drawn_number(self.own) if name in reductions else _drawn_object(self.own)
        rooted = (root,) if name in rooted_ones else ()
        mine = [drawn] * self.size if name in ("scatter", "alltoall") else drawn
        reduced = (op,) if name in reductions else ()
        expected = getattr(self.theirs, name)(mine, *reduced, *rooted)
        np.testing.assert_equal(getattr(self.ours, name)(mine, *reduced, *rooted), expected)

    def _algorithm(self, case: Case) -> str:
        return self.shared.choice(sorted(pycoll.algorithms(primitive_called(case.name))))


def _drawn_number(own: random.Random):
    return own.choice([own.randint(-9, 9), 2.0 ** own.randint(-5, 5), own.randint(-(2**66), 2**66)])


def _drawn_object(own: random.Random, depth: int = 0):
    kind = own.randrange(8 if depth < 3 else 4)
    if kind < 2:
        return own.choice([None, True, 1.5, 2**70, "text" * own.choice([1, 1, 9000]), b"bytes", np.float32(2)])
    if kind < 4:
        return np.full(own.choice([0, 1, 30, 1000, 5000, 100_000]), own.random(), own.choice(["f8", "i2", "c8", ">i4"]))
    items = [_drawn_object(own, depth + 1) for _ in range(own.randrange(4))]
    return items if kind == 4 else tuple(items) if kind == 5 else dict(enumerate(items))


def made(shared: random.Random) -> Stream:
    """Return a stream on a new communicator: of all ranks, of all in another order, or of some."""
    rank, size = WORLD.rank, WORLD.size
    makers = {
        "Dup": WORLD.Dup,
        "Split": lambda: WORLD.Split(0, -rank),
        "halves": lambda: WORLD.Split(rank % 2 if size > 2 else 0, -rank),
        "Create_cart": lambda: WORLD.Create_cart(MPI.Compute_dims(size, 2), [True, False]),
        "Create_graph": lambda: WORLD.Create_graph([*range(1, size + 1)], [(one + 1) % size for one in range(size)]),
        "Create_group": lambda: WORLD.Create_group(WORLD.Get_group()),
    }
    return Stream(makers[shared.choice([*makers])](), shared.randrange(1 << 40))


def in_use() -> list[int]:
    """Return the most of what a rank uses, in the order of `IN_USE`."""
    gc.collect()
    LIBC.malloc_trim(0)
    with open("/proc/self/statm") as sizes, open("/proc/self/maps") as maps:
        mine = [int(sizes.read().split()[1]) * mmap.PAGESIZE >> 20, len(os.listdir("/proc/self/fd"))]
        mine += [sum("memfd:pycoll" in line for line in maps), len(os.listdir("/dev/shm"))]
    return np.max(WORLD.allgather(mine), axis=0).tolist()


def grown(counts: list[list[int]]) -> list[str]:
    """Return what has grown since the second count, in words; pools may grow a little."""
    first = counts[:2][-1]
    allowed = [max(16, first[0] // 5), 2, 2, 2]
    rows = zip(IN_USE, first, counts[-1], allowed)
    return [f"{after} {name}, {before} at first" for name, before, after, more in rows if after > before + more]


def phase(shared: random.Random, streams: list[Stream], calls: int, interruptions: Interruptions, most: int) -> int:
    """Make calls on some communicators, sometimes beside threads that have their own; return the number of calls."""
    while len(streams) < 3:
        streams.append(made(shared))
    threads, wrong = [], []
    if most and shared.random() < 0.2:
        calls //= 4

        def work(stream: Stream) -> None:
            try:
                for _ in range(calls):
                    stream.call()
                stream.free()
            except BaseException as error:
                wrong.append(error)
                raise

        threads = [threading.Thread(target=work, args=[made(shared)]) for _ in range(most)]
    for thread in threads:
        thread.start()
    for _ in range(calls):
        shared.choice(streams).call(interruptions)
        if shared.random() < 0.001:
            if (child := os.fork()) == 0:
                os._exit(0)
            os.waitpid(child, 0)
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    for stream in [one for one in streams if shared.random() < 0.4]:
        streams.remove(stream)
        stream.free()
    return calls * (1 + len(threads))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000, help="collectives in all (%(default)s)")
    parser.add_argument("--minutes", type=float, help="how long to make calls, instead of --calls")
    parser.add_argument("--threads", type=int, default=2, help="beside the main thread, now and then (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="for other calls (%(default)s)")
    options = parser.parse_args(argv)
    pycoll.abort_on_exception()
    LIBC.mallopt(M_ARENA_MAX, 1)  # or each thread may keep free memory for itself
    shared = random.Random(options.seed)
    interruptions, streams, done, start = Interruptions(), [], 0, time.monotonic()
    part, counts = 0.0, []  # of the calls, or of the time
    while part < 1:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        done += phase(shared, streams, max(1, min(400, options.calls // COUNTS)), interruptions, options.threads)
        passed = (time.monotonic() - start) / 60
        part = WORLD.bcast(passed / options.minutes if options.minutes else done / options.calls)
        if part * COUNTS >= len(counts) + 1:
            while streams:
                streams.pop().free()
            counts.append(in_use())
    faulthandler.cancel_dump_traceback_later()
    raised, longer = WORLD.allreduce(interruptions.raised), grown(counts)
    if WORLD.rank == 0:
        print(f"{done} calls were right, {raised} exceptions of signal handlers, {time.monotonic() - start:.0f} s")
        shown = (f"{name}: {' '.join(map(str, count))}" for name, count in zip(IN_USE, zip(*counts)))
        print(*shown, *longer, sep="\n")
    return bool(longer)


if __name__ == "__main__":
    sys.exit(main())
