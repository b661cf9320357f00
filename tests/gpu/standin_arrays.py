"""Arrays of the stand-in for CuPy: all that computes with them, or copies them, is queued on the current stream.

Queued work refers to memory, not to arrays, so that it does not keep them alive.
"""

from __future__ import annotations

import numpy as np

from .standin_memory import Block, is_accessible, is_pinned, memory_at
from .standin_streams import CUDARuntimeError, get_current_stream, launch


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


def _host(value):
    if isinstance(value, list | tuple):
        return type(value)(map(_host, value))
    return value._host if isinstance(value, ndarray) else value


def _zeros(host):
    if isinstance(host, list | tuple):
        return type(host)(map(_zeros, host))
    return np.zeros_like(host) if isinstance(host, np.ndarray) else host


def later(function, *values, **options):
    """Queue a function whose result is a new array; its shape and dtype must not depend on contents."""
    hosts, options = [_host(value) for value in values], {name: _host(value) for name, value in options.items()}
    with np.errstate(all="ignore"):
        like = np.asarray(function(*map(_zeros, hosts), **options))
    result = ndarray(like.shape, like.dtype)
    to = result._host
    launch(lambda: np.copyto(to, function(*hosts, **options)))
    return result


def _inside(host, key):
    """Return an index without elements that are out of bounds: on a GPU, they read or write other memory."""
    if isinstance(key, tuple):
        return tuple(_inside(np.empty(n), each) for n, each in zip(host.shape, key, strict=False))
    return np.mod(key, len(host)) if isinstance(key, np.ndarray) and key.dtype != bool else key


def _in_memory(key):
    """Whether an index, or a part of it, is an array of the stand-in."""
    return isinstance(key, ndarray) or (isinstance(key, tuple) and any(isinstance(each, ndarray) for each in key))


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that NumPy cannot read."""

    launches = 0  # number of launched functions, on all such arrays

    def __init__(self, shape, dtype=float, memptr=None, strides=None):
        shape, dtype = (shape,) if isinstance(shape, int) else tuple(shape), np.dtype(dtype)
        packed = np.empty(shape, np.dtype((np.void, dtype.itemsize))).strides
        strides = packed if strides is None else strides
        extent = sum((n - 1) * s for n, s in zip(shape, strides)) + dtype.itemsize if np.prod(shape) else 0
        if memptr is None:
            self._owner = Block(extent)
            memory = self._owner.bytes
        else:
            self._owner = memptr.mem.owner
            if not is_accessible(memptr.ptr, extent):  # a kernel would fail on its first access
                raise CUDARuntimeError("cudaErrorIllegalAddress: kernels cannot access this memory")
            memory = memory_at(memptr.ptr, extent)
        self._host = np.ndarray(shape, dtype, memory, 0, strides)

    @classmethod
    def on(cls, host):
        """Return an array with these contents, which are there already."""
        host = np.asarray(host)
        self = cls(host.shape, host.dtype, None, np.empty_like(host, order="K").strides)
        get_current_stream().synchronize()
        self._host[...] = host
        return self

    def _view(self, host):
        view = ndarray.__new__(ndarray)
        view._host, view._owner = host, self._owner
        return view

    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    strides = property(lambda self: self._host.strides)
    size = property(lambda self: self._host.size)
    ndim = property(lambda self: self._host.ndim)
    nbytes = property(lambda self: self._host.nbytes)
    itemsize = property(lambda self: self._host.itemsize)
    flags = property(lambda self: _Flags(self._host.flags))
    device = property(lambda self: Device(getattr(self, "_device", 0)))
    T = property(lambda self: self._view(self._host.T))
    real = property(lambda self: self._view(self._host.real))

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
        if isinstance(key, ndarray) and key.dtype == bool:  # the shape of the result depends on the contents
            return self.on(self._ready()[key._host])
        if _in_memory(key):
            return later(lambda host, index: host[_inside(host, index)], self, key)
        found = self._host[key]
        return self._view(found if isinstance(found, np.ndarray) else self._host[key, ...])

    def __setitem__(self, key, value):
        if isinstance(value, np.ndarray) and value.ndim:
            raise TypeError("non-scalar numpy.ndarray cannot be used for fill")
        host, index, source = self._host, _host(key), _host(value)
        launch(lambda: host.__setitem__(_inside(host, index) if _in_memory(key) else index, source))

    def reshape(self, *shape):
        host = self._host.reshape(*shape)
        return self._view(host) if np.shares_memory(host, self._host) else later(np.reshape, self, host.shape)

    def view(self, dtype):
        return self._view(self._host.view(dtype))

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
        to, source = self._host, host if is_pinned(host) else host.copy()
        launch(lambda: np.copyto(to, source))

    def astype(self, dtype, casting="unsafe", copy=True):
        return later(lambda host: host.astype(dtype, casting=casting), self)

    def copy(self, order="K"):
        return later(np.copy, self, order=order)

    def swapaxes(self, one, other):
        return self._view(self._host.swapaxes(one, other))

    def fill(self, value):
        self[...] = value

    def sum(self, *args, **options):
        return later(np.sum, self, *args, **options)

    def max(self, *args, **options):
        return later(np.max, self, *args, **options)

    def mean(self):
        return later(np.mean, self)

    def item(self):
        return self._ready().item()

    def __float__(self):
        return float(self._ready())

    def __int__(self):
        return int(self._ready())

    def __bool__(self):
        return bool(self._ready())

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        assert method in ("__call__", "reduce")
        ndarray.launches += 1
        if any(isinstance(value, np.ndarray) and value.ndim for value in inputs):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        if out:
            result, hosts = out[0]._host, [_host(value) for value in inputs]
            launch(lambda: ufunc(*hosts, out=result, **options))
            return out[0]
        return later(getattr(ufunc, method), *inputs, **options)

    def __array_function__(self, function, types, args, options):
        if function is np.copyto:
            _copyto(*args, **options)
            return None
        if function in (np.empty_like, np.zeros_like):
            found = ndarray(options.get("shape") or args[0].shape, options.get("dtype") or args[0].dtype)
            if function is np.zeros_like:
                found.fill(0)
            return found
        if function is np.shares_memory:
            return np.shares_memory(*map(_host, args))
        return later(function, *args, **options)


def _copyto(to, source, casting="same_kind"):
    if not (isinstance(to, ndarray) and isinstance(source, ndarray)):
        raise TypeError("only CuPy's arrays can be copied to each other")
    if not np.can_cast(source.dtype, to.dtype, casting):
        raise TypeError(f"cannot cast {source.dtype} to {to.dtype}")
    target, origin = to._host, source._host
    launch(lambda: np.copyto(target, origin, casting="unsafe"))


def take(array, indices, out=None):
    source, index, to = array._host, indices._host, out._host
    launch(lambda: np.take(source, index, out=to, mode="wrap"))


def asarray(values, dtype=None):
    """As in CuPy: the host memory may be reused at once, but the copy to the GPU is queued."""
    if isinstance(values, ndarray):
        return values
    assert not hasattr(values, "__cuda_array_interface__")
    host = np.array(values, dtype)
    result = ndarray(host.shape, host.dtype)
    to = result._host
    launch(lambda: np.copyto(to, host))
    return result


def filled(value):
    def make(shape, dtype=float):
        result = ndarray(shape, dtype)
        result.fill(value)
        return result

    return make
