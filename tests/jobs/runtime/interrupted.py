"""A part of programs whose calls are interrupted by the exception of a signal handler."""

INTERRUPTED = """
class Interrupted(Exception):
    pass

def handler(number, frame):
    if armed[0]:
        armed[0] = False
        raise Interrupted

armed = [False]
signal.signal(signal.SIGALRM, handler)
"""
