"""A stand-in for CuPy, for machines without a GPU.

Its arrays are in host memory, which any MPI library can access, but NumPy cannot read them.  It is as unforgiving as a
GPU: its streams run queued work, copies included, only when they are waited for (`standin_streams`).  So data that is
read too early is garbage, and data that is written too early is overwritten.  Memory that is freed is reused at once
(`standin_memory`).  Kernels, copies and events can fail (`faults`).  It implements only the part of CuPy that pycoll
and its tests use.
"""

from __future__ import annotations

import contextlib
import sys
import types

import numpy as np
from mpi4py import MPI

from .standin_arrays import Device, MemoryPointer, UnownedMemory, asarray, filled, memory_at, ndarray, take
from .standin_memory import alloc_pinned_memory
from .standin_streams import CUDARuntimeError, Event, Stream, faults, get_current_stream, launch

__all__ = ["faults", "forget", "installed", "module", "ndarray"]

UFUNCS = ["add", "subtract", "multiply", "true_divide", "divide", "minimum", "maximum", "sqrt", "square"]
UFUNCS += ["logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"]


class _Ufunc:
    def __init__(self, name):
        self.__name__, self._ufunc = name, getattr(np, name)
        self.types = [*self._ufunc.types, "EE->E"]

    def __call__(self, *inputs, out=None):
        assert all(isinstance(value, ndarray | int | float) for value in inputs)
        return self._ufunc(*inputs, out=out)

    def at(self, array, indices, values):
        to, index, source = array._host, indices._host, values._host
        launch(lambda: self._ufunc.at(to, np.mod(index, len(to)), source))


class ElementwiseKernel:
    """The elementwise kernels of pycoll, implemented with NumPy."""

    def __init__(self, inputs, outputs, code, name, options=()):
        self._function = _KERNELS[name]

    def __call__(self, *arrays, stream=None):
        hosts, function = [array._host for array in arrays], self._function
        launch(lambda: function(*hosts), stream)


def _better(compare):
    def better(left, left_index, right, right_index, out, out_index):
        nan, other_nan = np.isnan(left), np.isnan(right)
        chosen, equal = ~nan & (other_nan | compare(right, left)), (nan & other_nan) | (right == left)
        chosen |= equal & (right_index < left_index)
        out[...], out_index[...] = np.where(chosen, right, left), np.where(chosen, right_index, left_index)

    return better


def _product(left, right, out):
    real = left.real * right.real - left.imag * right.imag
    out.imag, out.real = left.real * right.imag + left.imag * right.real, real


def _of_ufunc(ufunc):
    return lambda left, right, out: ufunc(left, right, out=out)


_KERNELS = {
    "pycoll_minloc": _better(np.less),
    "pycoll_maxloc": _better(np.greater),
    "pycoll_complex_product": _product,
    "pycoll_add": _of_ufunc(np.add),
    "pycoll_multiply": _of_ufunc(np.multiply),
}


def memcpyAsync(to, source, nbytes, kind, stream):
    assert kind == 4
    launch(lambda: nbytes and np.copyto(memory_at(to, nbytes), memory_at(source, nbytes)), Stream._all[stream])


def _checked(name):
    native = getattr(MPI.Intracomm, name)

    def method(self, *arguments):
        for place, spec in enumerate(arguments):
            buffer, *rest = spec if isinstance(spec, list) else [spec]
            if hasattr(buffer, "__cuda_array_interface__"):
                dense, other = not rest or rest[-1].is_predefined, arguments[place + 1] != self.rank
                assert dense and other, f"{name} copies GPU memory with the CPU, which is a segmentation fault"
        return native(self, *arguments)

    return method


class StrictMPI:
    """The methods of mpi4py, which fail where an MPI library crashes if only its UCX is CUDA-aware."""

    Send, Recv, Isend, Irecv, Sendrecv = map(_checked, ("Send", "Recv", "Isend", "Irecv", "Sendrecv"))


def module():
    """Return the stand-in as a module."""
    cupy = types.ModuleType("cupy")
    cupy.ndarray, cupy.ElementwiseKernel = ndarray, ElementwiseKernel
    cupy.empty, cupy.zeros, cupy.ones = ndarray, filled(0), filled(1)
    cupy.array = cupy.asarray = asarray
    cupy.take = take
    cupy.arange = lambda stop: asarray(np.arange(stop))
    cupy.asnumpy = lambda array: array.get()
    for name in UFUNCS:
        setattr(cupy, name, _Ufunc(name))
    runtime = types.SimpleNamespace(
        memcpyAsync=memcpyAsync,
        memcpyDefault=4,
        streamSynchronize=lambda ptr: (Stream._all.get(ptr) or Stream.null).synchronize(),
        getDeviceCount=lambda: 1,
        deviceGetPCIBusId=lambda device: "0000:00:00.0",
        CUDARuntimeError=CUDARuntimeError,
        getDevice=lambda: Device.current,
        getDeviceProperties=lambda device: {"name": b"a stand-in"},
        memGetInfo=lambda: (1 << 30, 1 << 30),
        runtimeGetVersion=lambda: 0,
        eventQuery=lambda event: Event._all[event].query(),
        eventRecord=lambda event, stream: Event._all[event].record(Stream._all[stream]),
    )
    cupy.cuda = types.SimpleNamespace(
        Stream=Stream,
        Event=Event,
        Device=Device,
        UnownedMemory=UnownedMemory,
        MemoryPointer=MemoryPointer,
        get_current_stream=get_current_stream,
        get_elapsed_time=lambda begin, end: max(1e-6, 1e3 * (end.time() - begin.time())),
        alloc_pinned_memory=alloc_pinned_memory,
        runtime=runtime,
    )
    cupy.__version__ = "0 (a stand-in)"
    return cupy


@contextlib.contextmanager
def installed():
    """Install the stand-in as the module `cupy`, and clear the GPU caches of pycoll before and after."""
    before = sys.modules.get("cupy")
    sys.modules["cupy"] = module()
    forget()
    detach()
    try:
        yield sys.modules["cupy"]
    finally:
        forget()
        detach()
        del sys.modules["cupy"]
        if before is not None:
            sys.modules["cupy"] = before


def detach():
    """Let pycoll attach to COMM_WORLD again: whether ranks may have GPU memory is decided when it does."""
    from pycoll.runtime.attach import keyval

    if MPI.COMM_WORLD.Get_attr(keyval()):
        MPI.COMM_WORLD.Delete_attr(keyval())


def forget():
    """Clear everything that pycoll has cached for a GPU."""
    from pycoll.arguments import streams
    from pycoll.runtime.attach import channels
    from pycoll.runtime.gpu import combine, cuda_aware, memory

    faults.clear()
    for channel in channels.values():
        channel.forget_plans()
        channel._scratch.clear()
    for function in (
        *(streams.own_stream, combine._arithmetic, combine._better, combine._complex_product, combine._compile),
        *(memory._warn, cuda_aware.support),
    ):
        function.cache_clear()
