"""User-defined operations on elements of a derived datatype, which stay whole, and operations that are freed early."""

from functools import reduce

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.schedule.registry import NATIVE, PRIMITIVES, algorithms_of
from tests.mpi.native import MANY, RANK, SIZE
from tests.mpi.varying import cut

pytestmark = pytest.mark.mpi

REDUCING = [name for name, primitive in PRIMITIVES.items() if primitive.reduces]
METHODS = {name: name.capitalize() for name in REDUCING} | {"reduce_scatter": "Reduce_scatter_block"}
COUNT = 3  # matrices for each rank


def multiply(left, right, datatype):
    """Multiply matrices; an error if an element is cut."""
    assert datatype.size == 32
    a, b = (np.frombuffer(buffer).reshape(-1, 2, 2) for buffer in (left, right))
    b[...] = a @ b


def matrices(rank):
    numbers = np.random.default_rng([20, rank]).integers(-2, 3, (COUNT * SIZE, 2, 2))
    return numbers.astype(float)


def expected(primitive):
    """The exact products, of whole numbers."""
    ranks = {"scan": range(RANK + 1), "exscan": range(RANK)}.get(primitive, range(SIZE))
    if not ranks or (primitive == "reduce" and RANK):
        return None
    products = reduce(np.matmul, map(matrices, ranks))
    return products[COUNT * RANK : COUNT * (RANK + 1)] if primitive == "reduce_scatter" else products


@pytest.fixture
def matrix():
    datatype = MPI.DOUBLE.Create_contiguous(4).Commit()
    yield datatype
    datatype.Free()


@pytest.fixture
def product():
    op = MPI.Op.Create(multiply, commute=False)
    yield op
    op.Free()


def ordered(primitive):
    names = [name for name, algorithm in algorithms_of(primitive).items() if algorithm.ordered and name != NATIVE]
    return [None, *(names[:3] if MANY else names)]


def waited(request):
    if isinstance(request, pycoll.Persistent):
        request.Start()
    return request.wait()


@pytest.mark.parametrize("primitive", REDUCING)
def test_functions(primitive, matrix, product):
    pycoll.attach(MPI.COMM_WORLD)
    send, answer = matrices(RANK), expected(primitive)
    before = send.copy()
    for algorithm in ordered(primitive):
        given = {"op": product, "algorithm": algorithm}
        with cut(40):
            for form in ("{}", "i{}", "{}_init"):
                function = getattr(pycoll, form.format(primitive))
                result = function([send, matrix], **given)
                result = result if form == "{}" else waited(result)
                np.testing.assert_array_equal(result, answer)
                assert answer is None or result.shape == answer.shape
                recv = np.empty((COUNT if primitive == "reduce_scatter" else COUNT * SIZE, 2, 2))
                for spec in (recv, [recv, matrix]):
                    recv[...] = 0
                    result = function([send, matrix], spec, **given)
                    result = result if form == "{}" else waited(result)
                    assert (result is None) if answer is None else (result is recv)
                    np.testing.assert_array_equal(recv, 0 if answer is None else answer)
            if primitive != "reduce":
                inside = send.copy()
                result = getattr(pycoll, primitive)(MPI.IN_PLACE, [inside, matrix], **given)
                if answer is not None:
                    np.testing.assert_array_equal(np.reshape(result, answer.shape), answer)
    np.testing.assert_array_equal(send, before)


def test_functions_with_counts(matrix, product):
    counts = [rank + 1 for rank in range(SIZE)]
    values = [np.resize(matrices(rank), (sum(counts), 2, 2)) for rank in range(SIZE)]
    start = sum(counts[:RANK])
    answer = reduce(np.matmul, values)[start : start + RANK + 1]
    result = pycoll.reduce_scatter([values[RANK], matrix], op=product, recvcounts=counts)
    np.testing.assert_array_equal(result.reshape(answer.shape), answer)


@pytest.mark.parametrize("primitive", REDUCING)
def test_methods(primitive, matrix, product):
    comm = pycoll.Comm(MPI.COMM_WORLD)
    send, answer = matrices(RANK), expected(primitive)
    method = METHODS[primitive]
    for algorithm in ordered(primitive):
        with cut(40):
            for name in (method, f"I{method.lower()}", f"{method}_init"):
                recv = np.zeros((COUNT if primitive == "reduce_scatter" else COUNT * SIZE, 2, 2))
                request = getattr(comm, name)([send, matrix], [recv, matrix], product, algorithm=algorithm)
                if request:
                    waited(request)
                np.testing.assert_array_equal(recv, 0 if answer is None else answer)


def test_what_is_refused(matrix, product):
    send = matrices(RANK)
    gaps = MPI.DOUBLE.Create_vector(2, 1, 2).Commit()
    for error, pattern, arguments in (
        (TypeError, "op=SUM is not defined for dtype", ([send, matrix], None, "sum")),
        (TypeError, "sendbuf does not", (send, [send.copy(), matrix], product)),
        (TypeError, "supported only by the methods of pycoll.Comm", ([send, gaps], None, product)),
        (TypeError, "sendbuf must be an array", ([None, matrix], None, product)),
        (ValueError, "multiple of datatype extent", ([np.ones(5), matrix], None, product)),
        (ValueError, "mismatch in send count", ([send, matrix], np.ones(8 * COUNT * SIZE), product)),
    ):
        with pytest.raises(error, match=pattern):
            pycoll.allreduce(*arguments)
    gaps.Free()
    np.testing.assert_array_equal(pycoll.allreduce([send[:0], matrix], op=product), send[:0])


def test_predefined_datatypes_in_functions():
    values = np.arange(4.0)
    np.testing.assert_array_equal(pycoll.allreduce([values, MPI.DOUBLE]), values * SIZE)
    halves = pycoll.allreduce([values.view("c16"), MPI.DOUBLE], op="max")
    assert halves.dtype == complex and halves.tolist() == values.view("c16").tolist()


def add(left, right, datatype):
    a, b = (np.frombuffer(buffer) for buffer in (left, right))
    b += a


@pytest.mark.parametrize("algorithm", [None, "naive", "native"])
@pytest.mark.parametrize("form", ["I{}", "{}_init"])
def test_operations_and_datatypes_freed_before_the_end(form, algorithm):
    """There are more turns than operations that mpi4py allows at a time."""
    comm = pycoll.Comm(MPI.COMM_WORLD)
    method = getattr(comm, form.format("allreduce" if form == "I{}" else "Allreduce"))
    send, doubles, answer = matrices(RANK), np.full(1000, RANK + 1.0), expected("allreduce")
    for _ in range(40):
        op, matrix = MPI.Op.Create(multiply, commute=False), MPI.DOUBLE.Create_contiguous(4).Commit()
        plus = MPI.Op.Create(lambda *arguments: add(*arguments), commute=True)
        recv, sums = np.zeros_like(send), np.zeros_like(doubles)
        requests = [
            method(doubles, sums, plus, algorithm=algorithm),
            method([send, matrix], [recv, matrix], op, algorithm=algorithm),
        ]
        plus.Free()
        op.Free()
        matrix.Free()
        for _ in range(1 if form == "I{}" else 2):
            for request in requests:
                if form != "I{}":
                    request.Start()
                request.Wait()
            np.testing.assert_array_equal(sums, np.full(1000, sum(range(1, SIZE + 1))))
            np.testing.assert_array_equal(recv, answer)
        for request in requests:
            if form != "I{}":
                request.Free()
        del request, requests
