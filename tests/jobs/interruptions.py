"""A signal handler for programs of jobs: it raises an exception if it is armed, and disarms itself."""

import signal


class Interrupted(Exception):
    pass


def handler(number, frame):
    if armed[0]:
        armed[0] = False
        raise Interrupted


armed = [False]
signal.signal(signal.SIGALRM, handler)
