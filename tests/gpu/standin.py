"""A stand-in for CuPy, for machines without a GPU.

Its arrays are in host memory, which any MPI library can access, but NumPy cannot read them.  Its streams run queued
work only when they are waited for.  So data that is read too early is garbage, and data that is written too early is
overwritten.  It implements only the part of CuPy that pycoll and its tests use.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import types
import weakref
from collections import deque
from typing import ClassVar

import numpy as np

GARBAGE = 0xA5
UFUNCS = ["add", "subtract", "multiply", "true_divide", "divide", "minimum", "maximum", "sqrt", "square"]
UFUNCS += ["logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"]


class Stream:
    """A stream that runs queued work only when it is waited for."""

    null: Stream
    _all: ClassVar[dict[int, Stream]] = {}

    def __init__(self, null=False, non_blocking=False):
        self.ptr = 0 if null else id(self)
        self._queue, self._told, self._done, self._lock = deque(), 0, 0, threading.RLock()
        self._all[self.ptr] = self

    def tell(self, task):
        with self._lock:
            self._queue.append(task)
            self._told += 1

    def advance(self, until):
        with self._lock:
            while self._done < until:
                task = self._queue.popleft()
                self._done += 1
                task()

    def step(self):
        self.advance(min(self._done + 1, self._told))

    def synchronize(self):
        self.advance(self._told)

    def record(self, event=None):
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event):
        stream, place = event.stream, event.place
        self.tell(lambda: stream.advance(place))

    def use(self):
        _threads.current = self
        return self

    def __enter__(self):  # as in CuPy, `use` does not change the stack of with blocks
        _stack().append(self)
        return self.use()

    def __exit__(self, *_):
        _stack().pop()
        (_stack() or [Stream.null])[-1].use()


Stream.null = Stream._all[1] = Stream(null=True)


_threads = threading.local()


def _stack():
    if not hasattr(_threads, "stack"):
        _threads.stack = []
    return _threads.stack


def get_current_stream():
    return getattr(_threads, "current", Stream.null)


class Event:
    _all: ClassVar[weakref.WeakValueDictionary] = weakref.WeakValueDictionary()

    def __init__(self, block=False, disable_timing=False):
        self.stream, self.place, self.ptr = Stream.null, 0, id(self)
        self._all[self.ptr] = self

    def record(self, stream=None):
        self.stream = get_current_stream() if stream is None else stream
        times = self.times = []
        self.stream.tell(lambda: times.append(time.perf_counter()))
        self.place = self.stream._told

    def time(self):
        return self.times[0]

    @property
    def done(self):
        self.stream.step()
        return self.stream._done >= self.place

    def synchronize(self):
        self.stream.advance(self.place)


class Device:
    current = 0

    def __init__(self, device=0):
        self.id = int(device)

    def use(self):
        Device.current = self.id

    def __enter__(self):
        self._before, Device.current = Device.current, self.id
        return self

    def __exit__(self, *_):
        Device.current = self._before


class UnownedMemory:
    def __init__(self, ptr, size, owner, device_id=-1):
        self.ptr, self.size, self.owner = ptr, size, owner


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, 0


class _Flags:
    def __init__(self, flags):
        self.c_contiguous, self.f_contiguous = flags.c_contiguous, flags.f_contiguous


def _memory(ptr, nbytes):
    from mpi4py import MPI

    return np.frombuffer(MPI.buffer.fromaddress(ptr, nbytes), np.uint8)


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that NumPy cannot read."""

    launches = 0  # number of launched functions, on all such arrays

    def __init__(self, shape, dtype=float, memptr=None, strides=None):
        shape, dtype = (shape,) if isinstance(shape, int) else tuple(shape), np.dtype(dtype)
        if memptr is None:
            self._host = np.full(int(np.prod(shape)) * dtype.itemsize, GARBAGE, np.uint8).view(dtype).reshape(shape)
            return
        strides = np.empty(shape, np.dtype((np.void, dtype.itemsize))).strides if strides is None else strides
        extent = sum((n - 1) * s for n, s in zip(shape, strides)) + dtype.itemsize if np.prod(shape) else 0
        self._host = np.ndarray(shape, dtype, _memory(memptr.ptr, extent), 0, strides)
        self._owner = memptr.mem.owner

    @classmethod
    def on(cls, host):
        self = cls.__new__(cls)
        self._host = host
        return self

    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    strides = property(lambda self: self._host.strides)
    size = property(lambda self: self._host.size)
    ndim = property(lambda self: self._host.ndim)
    nbytes = property(lambda self: self._host.nbytes)
    itemsize = property(lambda self: self._host.itemsize)
    flags = property(lambda self: _Flags(self._host.flags))
    device = property(lambda self: Device(getattr(self, "_device", 0)))
    T = property(lambda self: self.on(self._host.T))
    real = property(lambda self: self.on(self._host.real))

    @property
    def data(self):
        return MemoryPointer(UnownedMemory(self._host.ctypes.data, self.nbytes, self), 0)

    @property
    def __cuda_array_interface__(self):
        found = dict(self._host.__array_interface__)
        stream = get_current_stream().ptr
        return {key: found[key] for key in ("shape", "typestr", "data", "strides", "descr")} | {
            "version": 3,
            "stream": stream or 1,
        }

    def __len__(self):
        return len(self._host)

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def _ready(self):
        get_current_stream().synchronize()
        return self._host

    def __getitem__(self, key):
        if isinstance(key, ndarray):
            return self.on(self._ready()[key._host])
        found = self._host[key]
        return self.on(found if isinstance(found, np.ndarray) else self._host[key, ...])

    def __setitem__(self, key, value):
        if isinstance(value, np.ndarray) and value.ndim:
            raise TypeError("non-scalar numpy.ndarray cannot be used for fill")
        key = key._ready() if isinstance(key, ndarray) else key
        value = value._host if isinstance(value, ndarray) else value
        if isinstance(value, np.ndarray) and value.size and not np.shares_memory(value, self._host):
            source = value
            get_current_stream().tell(lambda: self._host.__setitem__(key, source))
        else:
            self._ready()[key] = value

    def reshape(self, *shape):
        return self.on(self._host.reshape(*shape))

    def view(self, dtype):
        return self.on(self._host.view(dtype))

    def get(self, out=None):
        if out is None:
            return self._ready().copy()
        out[...] = self._ready()
        return out

    def set(self, host):
        if type(host) is not np.ndarray or (host.dtype, host.shape) != (self.dtype, self.shape):
            raise TypeError("set takes an array of the host's with the same dtype and shape")
        if not self.flags.c_contiguous:
            raise RuntimeError("set needs contiguous memory")
        self._ready()[...] = host

    def astype(self, dtype, casting="unsafe", copy=True):
        return self.on(self._ready().astype(dtype, casting=casting))

    def copy(self):
        return self.on(self.get())

    def fill(self, value):
        self[...] = value

    def sum(self):
        return self.on(np.array(self._ready().sum()))

    def item(self):
        return self._ready().item()

    __float__ = __bool__ = None

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        assert method in ("__call__", "reduce")
        ndarray.launches += 1
        if any(isinstance(value, np.ndarray) and value.ndim for value in inputs):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        hosts = [value._host if isinstance(value, ndarray) else value for value in inputs]
        if out:
            result = out[0]._host
            get_current_stream().tell(lambda: ufunc(*hosts, out=result, **options))
            return out[0]
        get_current_stream().synchronize()
        return self.on(np.asarray(getattr(ufunc, method)(*hosts, **options)))

    def __array_function__(self, function, types, args, options):
        if function is np.copyto:
            to, source = args
            if not (isinstance(to, ndarray) and isinstance(source, ndarray)):
                raise TypeError("only CuPy's arrays can be copied to each other")
            if not np.can_cast(source.dtype, to.dtype, options.get("casting", "same_kind")):
                raise TypeError(f"cannot cast {source.dtype} to {to.dtype}")
            get_current_stream().tell(lambda: np.copyto(to._host, source._host, casting="unsafe"))
            return None
        if function in (np.empty_like, np.zeros_like):
            found = ndarray(options.get("shape") or args[0].shape, options.get("dtype") or args[0].dtype)
            if function is np.zeros_like:
                found._host[...] = 0
            return found
        get_current_stream().synchronize()
        hosts = [value._host if isinstance(value, ndarray) else value for value in args]
        found = function(*hosts, **options)
        return self.on(found) if isinstance(found, np.ndarray) else found


for _name in ("__float__", "__bool__", "__int__"):
    setattr(ndarray, _name, lambda self, name=_name: getattr(self._ready(), name)())


class _Ufunc:
    def __init__(self, name):
        self.__name__, self._ufunc = name, getattr(np, name)
        self.types = [*self._ufunc.types, "EE->E"]

    def __call__(self, *inputs, out=None):
        assert all(isinstance(value, ndarray | int | float) for value in inputs)
        return self._ufunc(*inputs, out=out)


class ElementwiseKernel:
    """The elementwise kernels of pycoll, implemented with NumPy."""

    def __init__(self, inputs, outputs, code, name, options=()):
        self._function = {"pycoll_minloc": _better(np.less), "pycoll_maxloc": _better(np.greater)}.get(name, _product)

    def __call__(self, *arrays):
        hosts = [array._host for array in arrays]
        get_current_stream().tell(lambda: self._function(*hosts))


def _better(compare):
    def better(left, left_index, right, right_index, out, out_index):
        chosen = compare(right, left) | ((right == left) & (right_index < left_index))
        out[...], out_index[...] = np.where(chosen, right, left), np.where(chosen, right_index, left_index)

    return better


def _product(left, right, out):
    real = left.real * right.real - left.imag * right.imag
    out.imag, out.real = left.real * right.imag + left.imag * right.real, real


def memcpyAsync(to, source, nbytes, kind, stream):
    assert kind == 4
    Stream._all[stream].tell(lambda: nbytes and np.copyto(_memory(to, nbytes), _memory(source, nbytes)))


def take(array, indices, out=None):
    hosts = array._host, indices._host, out._host
    get_current_stream().tell(lambda: np.take(hosts[0], hosts[1], out=hosts[2]))


def asarray(values, dtype=None):
    if isinstance(values, ndarray):
        return values
    assert not hasattr(values, "__cuda_array_interface__")
    return ndarray.on(np.array(values, dtype))


def _filled(make):
    return lambda shape, dtype=float: ndarray.on(make(shape, dtype))


def module():
    """Return the stand-in as a module."""
    cupy = types.ModuleType("cupy")
    cupy.ndarray, cupy.ElementwiseKernel = ndarray, ElementwiseKernel
    cupy.empty, cupy.zeros, cupy.ones = ndarray, _filled(np.zeros), _filled(np.ones)
    cupy.array = cupy.asarray = asarray
    cupy.take = take
    cupy.asnumpy = lambda array: array.get()
    for name in UFUNCS:
        setattr(cupy, name, _Ufunc(name))
    runtime = types.SimpleNamespace(
        memcpyAsync=memcpyAsync,
        memcpyDefault=4,
        streamSynchronize=lambda ptr: (Stream._all.get(ptr) or Stream.null).synchronize(),
        getDeviceCount=lambda: 1,
        deviceGetPCIBusId=lambda device: "0000:00:00.0",
        CUDARuntimeError=RuntimeError,
        getDevice=lambda: Device.current,
        getDeviceProperties=lambda device: {"name": b"a stand-in"},
        memGetInfo=lambda: (1 << 30, 1 << 30),
        runtimeGetVersion=lambda: 0,
        eventQuery=lambda event: 0 if Event._all[event].done else 600,
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
        alloc_pinned_memory=lambda nbytes: bytearray([GARBAGE]) * nbytes,
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
    try:
        yield sys.modules["cupy"]
    finally:
        forget()
        del sys.modules["cupy"]
        if before is not None:
            sys.modules["cupy"] = before


def forget():
    """Clear everything that pycoll has cached for a GPU."""
    from pycoll.arguments import streams
    from pycoll.runtime.attach import channels
    from pycoll.runtime.gpu import combine, cuda_aware, memory

    for channel in channels.values():
        channel.clear()
        channel._scratch.clear()
    for function in (
        *(streams.own_stream, combine._better, combine._complex_product, combine._compile),
        *(memory._warn, cuda_aware.support),
    ):
        function.cache_clear()
