"""Fill the heap with blocks that contain no zeros, and leave gaps of all sizes for the allocations of MPI_Init."""

import ctypes

c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes, c.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
gaps = []
for size in [size for size in range(24, 2000, 16) for _ in range(10)]:
    gaps.append(c.malloc(size))
    ctypes.memset(c.malloc(5000), 0xAA, 5000)
for gap in gaps:
    c.free(gap)
