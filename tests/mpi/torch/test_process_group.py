import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.distributed as dist
from torch.distributed import ReduceOp

pytestmark = pytest.mark.mpi

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64,
    torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool,
]  # fmt: skip
OPERATIONS = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]
SIZES = [0, 1, 7, 1000, 50_003]


def drawn(dtype, *shape):
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.float32 if dtype.itemsize < 4 else dtype).to(dtype)
    return torch.randint(0, 5, shape).to(dtype)


def is_defined(op, dtype):
    if dtype.is_complex:
        return op == ReduceOp.SUM
    return op not in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR) or not dtype.is_floating_point


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_reduce(compare, dtype):
    def case(group):
        for op in OPERATIONS:
            for size in SIZES:
                if is_defined(op, dtype):
                    tensor = drawn(dtype, size)
                    dist.all_reduce(tensor, op, group=group)
                    yield tensor

    compare(lambda group: list(case(group)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reduce(compare, dtype):
    def case(group):
        for root in range(dist.get_world_size()):
            tensor = drawn(dtype, 1000)
            before = tensor.clone()
            dist.reduce(tensor, root, group=group)
            yield tensor if dist.get_rank() == root else before

    compare(lambda group: list(case(group)))


@pytest.mark.parametrize("async_op", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_movers(compare, dtype, async_op):
    def case(group):
        size = dist.get_world_size()
        options = {"group": group, "async_op": async_op}
        for count in SIZES[1:]:
            mine, theirs = drawn(dtype, count), [torch.empty(count, dtype=dtype) for _ in range(size)]
            together, blocks = torch.empty(size * count, dtype=dtype), drawn(dtype, size * count)
            exchanged, sent = torch.empty_like(blocks), mine.clone()
            works = [
                dist.broadcast(sent, size - 1, **options),
                dist.all_gather(theirs, mine, **options),
                dist.all_gather_single(together, mine, **options),
                dist.all_to_all_single(exchanged, blocks, **options),
            ]
            for work in reversed(works):
                assert work is None or work.wait()
            yield from [sent, *theirs, together, exchanged]

    compare(lambda group: list(case(group)))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float8_e4m3fn, torch.uint16, torch.complex128], ids=str)
def test_gather_and_scatter(world, dtype):
    rank, size = dist.get_rank(), dist.get_world_size()
    blocks = list((torch.arange(size * 16) % 2).to(torch.uint8).view(dtype).chunk(size))
    mine = blocks[rank].clone()
    together = torch.empty(size * len(mine), dtype=dtype)
    dist.all_gather_single(together, mine)
    assert as_bytes(together) == as_bytes(torch.cat(blocks))
    for root in range(size):
        gathered = [torch.empty_like(mine) for _ in range(size)] if rank == root else None
        dist.gather(mine, gathered, root)
        assert rank != root or [as_bytes(each) for each in gathered] == [as_bytes(each) for each in blocks]
        scattered = torch.empty_like(mine)
        dist.scatter(scattered, blocks if rank == root else None, root)
        assert as_bytes(scattered) == as_bytes(mine)


def as_bytes(tensor):
    return tensor.contiguous().view(torch.uint8).tolist()


@pytest.mark.parametrize("op", [ReduceOp.SUM, ReduceOp.MAX, ReduceOp.PRODUCT])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.bfloat16], ids=str)
def test_reduce_scatter(compare, dtype, op):
    def case(group):
        size = dist.get_world_size()
        for count in SIZES[1:]:
            given, result, listed = (
                drawn(dtype, size * count),
                torch.empty(count, dtype=dtype),
                torch.empty(count, dtype=dtype),
            )
            dist.reduce_scatter_single(result, given, op, group=group)
            dist.reduce_scatter(listed, list(given.chunk(size)), op, group=group)
            yield from (result, listed)

    compare(lambda group: list(case(group)))


def test_average(world):
    rank, size = dist.get_rank(), dist.get_world_size()
    mean = (size - 1) / 2
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        tensor = torch.full((5,), rank, dtype=dtype)
        dist.all_reduce(tensor, ReduceOp.AVG)
        assert torch.equal(tensor, torch.full((5,), mean).to(dtype))
    result = torch.empty(2)
    dist.reduce_scatter_single(result, torch.full((2 * size,), float(rank)), ReduceOp.AVG)
    assert result.tolist() == [mean] * 2


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int64], ids=str)
def test_average_of_integers(world, dtype):
    rank, size = dist.get_rank(), dist.get_world_size()
    values = [rank, 7, (2 ** (8 * min(dtype.itemsize, 7)) - 1) // size // 4]
    expected = [(size - 1) // 2, *values[1:]]
    whole, root, block = torch.tensor(values).to(dtype), torch.tensor(values).to(dtype), torch.empty(3, dtype=dtype)
    spread = torch.tensor([values, values]).to(dtype).t()
    dist.all_reduce(whole, ReduceOp.AVG)
    dist.all_reduce(spread, ReduceOp.AVG)
    dist.reduce(root, size - 1, ReduceOp.AVG)
    dist.reduce_scatter_single(block, torch.tensor(values * size).to(dtype), ReduceOp.AVG)
    assert whole.tolist() == block.tolist() == expected
    assert spread.t().tolist() == [expected, expected]
    assert root.tolist() == (expected if rank == size - 1 else values)


def test_the_average_of_booleans_is_not_defined(world):
    refuses_before_anything_is_sent(
        "AVG is not defined", lambda: dist.all_reduce(torch.ones(3, dtype=torch.bool), ReduceOp.AVG)
    )


def test_premultiplied_sum(world):
    rank, size = dist.get_rank(), dist.get_world_size()
    for factor in (0.5, torch.tensor([0.5])):
        op = dist._make_nccl_premul_sum(factor)
        total, given = torch.full((3,), float(rank)), torch.full((size,), float(rank))
        dist.all_reduce(total, op)
        assert total.tolist() == [size * (size - 1) / 4] * 3
        block = torch.empty(1)
        dist.reduce_scatter_single(block, given, op)
        assert block.item() == size * (size - 1) / 4
        assert given.tolist() == [rank] * size  # the input keeps its values
        root = torch.full((3,), float(rank))
        dist.reduce(root, 0, op)
        assert root.tolist() == ([size * (size - 1) / 4] * 3 if rank == 0 else [rank] * 3)


def refuses_before_anything_is_sent(message, call):
    """Check that a rank which is refused sends nothing: the next collective has the right result."""
    with pytest.raises(TypeError, match=message):
        call()
    total = torch.ones(3)
    dist.all_reduce(total)
    assert total.tolist() == [dist.get_world_size()] * 3


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.uint16], ids=str)
def test_factors_of_another_kind(world, dtype):
    size = dist.get_world_size()
    for factor in (2.5, torch.tensor([2.5], dtype=torch.float64)):
        op, message = dist._make_nccl_premul_sum(factor), rf"factor .*2\.5.* cannot be applied to {dtype}"
        for call in (
            lambda op=op: dist.all_reduce(torch.ones(3, dtype=dtype), op),
            lambda op=op: dist.reduce(torch.ones(3, dtype=dtype), 0, op),
            lambda op=op: dist.reduce_scatter_single(torch.ones(2, dtype=dtype), torch.ones(2 * size, dtype=dtype), op),
        ):
            refuses_before_anything_is_sent(message, call)
    total = torch.ones(3, dtype=dtype)
    dist.all_reduce(total, dist._make_nccl_premul_sum(torch.tensor([1]).to(dtype)))
    assert torch.equal(total, torch.full((3,), size).to(dtype))


def test_factors_of_another_precision(world):
    size = dist.get_world_size()
    op = dist._make_nccl_premul_sum(torch.tensor([0.5], dtype=torch.float64))
    block = torch.empty(2, dtype=torch.bfloat16)
    dist.reduce_scatter_single(block, torch.ones(2 * size, dtype=torch.bfloat16), op)
    assert block.tolist() == [size / 2] * 2
    total = torch.ones(2)
    dist.reduce(total, 0, op)
    assert total.tolist() == ([size / 2] * 2 if dist.get_rank() == 0 else [1] * 2)


def test_sizes_that_differ_between_ranks(world):
    rank, size = dist.get_rank(), dist.get_world_size()
    gathered = [torch.empty(each + 1, each) for each in range(size)]
    dist.all_gather(gathered, torch.full((rank + 1, rank), float(rank)))
    assert all((tensor == each).all() for each, tensor in enumerate(gathered))
    given = [torch.full((each,), 1.0) for each in range(size)]
    result = torch.empty(rank)
    dist.reduce_scatter(result, given)
    assert result.tolist() == [size] * rank


def test_all_to_all_with_splits(compare):
    def case(group):
        rank, size = dist.get_rank(), dist.get_world_size()
        for width in ((), (3,), (2, 2)):
            given = drawn(torch.float32, sum(range(size)), *width)
            result = torch.empty(rank * size, *width)
            dist.all_to_all_single(result, given, [rank] * size, list(range(size)), group=group)
            yield result

    compare(lambda group: list(case(group)))


def test_all_to_all_of_lists(world):
    rank, size = dist.get_rank(), dist.get_world_size()
    given = [torch.full((each + 1,), 10 * rank + each) for each in range(size)]
    result = [torch.empty(rank + 1, dtype=torch.int64) for _ in range(size)]
    dist.all_to_all(result, given)
    assert [tensor.tolist() for tensor in result] == [[10 * each + rank] * (rank + 1) for each in range(size)]


def test_tensors_with_gaps(world):
    rank, size = dist.get_rank(), dist.get_world_size()
    matrix = torch.arange(12.0).view(3, 4)
    for tensor in (matrix.clone().t(), matrix.clone()[:, 1:3], matrix.clone()[::2]):
        expected = tensor * size
        dist.all_reduce(tensor)
        assert torch.equal(tensor, expected)
        dist.broadcast(tensor.mul_(rank + 1), 0)
        assert torch.equal(tensor, expected)
        output = torch.empty(size, *tensor.shape)
        dist.all_gather_single(output, tensor)
        assert torch.equal(output, expected.expand_as(output))
        target = torch.empty(*tensor.shape[::-1]).t()
        dist.reduce_scatter_single(target, tensor.repeat(size, 1))
        assert torch.equal(target, expected * size)


def test_gather_from_a_slice_of_the_output(world):
    rank, size = dist.get_rank(), dist.get_world_size()
    output = torch.full((size * 5,), -1.0)
    mine = output[5 * rank : 5 * rank + 5].fill_(rank)
    dist.all_gather_single(output, mine)
    assert torch.equal(output, torch.arange(float(size)).repeat_interleave(5))
    given = torch.arange(float(size)).repeat_interleave(5)
    dist.reduce_scatter_single(given[5 * rank : 5 * rank + 5], given)
    assert given[5 * rank : 5 * rank + 5].tolist() == [rank * size] * 5


def test_coalesced(world):
    rank, size = dist.get_rank(), dist.get_world_size()
    tensors = [torch.full((n + 1,), float(rank)) for n in range(3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    assert all((tensor == sum(range(size))).all() for tensor in tensors)
    outputs = [torch.empty(size * (n + 1)) for n in range(3)]
    with dist._coalescing_manager():
        for output, n in zip(outputs, range(3)):
            dist.all_gather_single(output, torch.full((n + 1,), float(rank)))
    assert all(
        torch.equal(output, torch.arange(float(size)).repeat_interleave(n + 1)) for n, output in enumerate(outputs)
    )
    blocks = [torch.empty(n + 1) for n in range(3)]
    with dist._coalescing_manager():
        for block, n in zip(blocks, range(3)):
            dist.reduce_scatter_single(block, torch.ones(size * (n + 1)))
    assert all((block == size).all() for block in blocks)


def test_sparse(compare):
    def case(group):
        rank = dist.get_rank()
        indices = torch.tensor([[0, rank, rank], [1, 2, 2]])
        for dense in ((), (3,)):
            tensor = torch.sparse_coo_tensor(indices, torch.ones(3, *dense), (dist.get_world_size(), 4, *dense))
            dist.all_reduce(tensor, group=group)
            yield tensor.to_dense()

    compare(lambda group: list(case(group)))


def test_objects(world):
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = {"rank": rank, "text": "x" * 100 * rank}
    gathered = [None] * size
    dist.all_gather_object(gathered, mine)
    assert [each["rank"] for each in gathered] == list(range(size))
    sent = [mine, "second"] if rank == size - 1 else [None, None]
    dist.broadcast_object_list(sent, size - 1)
    assert sent == [{"rank": size - 1, "text": "x" * 100 * (size - 1)}, "second"]
    got = [None]
    dist.scatter_object_list(got, [f"for {each}" for each in range(size)] if rank == 0 else None)
    assert got == [f"for {rank}"]
    at_root = [None] * size if rank == 0 else None
    dist.gather_object(rank, at_root)
    assert at_root == (list(range(size)) if rank == 0 else None)


def test_functional_collectives(compare):
    from torch.distributed import _functional_collectives as functional

    def case(group):
        size = dist.get_world_size()
        given = drawn(torch.float32, 4 * size, 3)
        yield functional.all_reduce(given, "sum", group).clone()
        yield functional.all_gather_tensor(given, 0, group).clone()
        yield functional.reduce_scatter_tensor(given, "sum", 0, group).clone()
        yield functional.all_to_all_single(given, [4] * size, [4] * size, group).clone()
        yield functional.broadcast(given, 0, group).clone()

    compare(lambda group: list(case(group)))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: dist.all_reduce(torch.ones(2), ReduceOp.BAND), TypeError, "BAND is not defined for torch.float32"),
        (lambda: dist.all_gather_single(torch.ones(3), torch.ones(2)), ValueError, "output has 3 elements"),
        (lambda: dist.reduce_scatter_single(torch.ones(2), torch.ones(99)), ValueError, "input has 99 elements"),
        (lambda: dist.all_to_all_single(torch.ones(2), torch.ones(2).int()), ValueError, "different dtypes"),
        (lambda: dist.all_to_all_single(torch.ones(2), torch.ones(2), [7], [7]), ValueError, "split sizes"),
    ],
)
def test_wrong_arguments(world, call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("root", [0, -1])
def test_blocks_of_one_tensor_in_place(world, root):
    rank, size = dist.get_rank(), dist.get_world_size()
    root %= size
    whole = torch.full((4 * size,), float(rank))
    parts = list(whole.chunk(size))
    dist.gather(parts[rank], parts if rank == root else None, root)
    expected = torch.arange(float(size)).repeat_interleave(4)
    assert rank != root or torch.equal(whole, expected)
    whole.copy_(expected)
    dist.scatter(parts[(rank + 1) % size], parts if rank == root else None, root)
    assert (parts[(rank + 1) % size] == rank).all()
    whole.copy_(expected + 100 * rank)
    dist.all_to_all_single(whole, whole)
    assert torch.equal(whole, rank + 100 * expected)


def test_all_gather_of_every_second_element_of_the_output(world):
    rank, size = dist.get_rank(), dist.get_world_size()
    output = torch.arange(8.0 * size)
    given = output[8 * rank : 8 * rank + 8 : 2] if size == 1 else output[8 * rank : 8 * rank + 16 : 2][:4]
    whole = output[: 4 * size]
    expected = torch.cat([torch.arange(8.0 * each, 8.0 * each + 8, 2) for each in range(size)])
    dist.all_gather_single(whole, given)
    assert torch.equal(whole, expected)


def test_negative_view(world):
    """Its memory is not its elements."""
    size = dist.get_world_size()
    negative = torch.tensor([1 + 2j]).conj().imag
    listed = [torch.empty_like(negative) for _ in range(size)]
    dist.all_gather(listed, negative)
    assert [each.item() for each in listed] == [-2] * size


def test_inference_mode(world):
    size = dist.get_world_size()
    with torch.inference_mode():
        listed, whole = [torch.zeros(3) for _ in range(size)], torch.full((3,), 5)
        works = [
            dist.all_gather(listed, torch.ones(3), async_op=True),
            dist.all_reduce(whole, ReduceOp.AVG, async_op=True),
        ]
        while not all(work.is_completed() for work in works):
            time.sleep(0.001)  # the thread of pycoll completes them
        assert all(work.wait() for work in works)
        assert (torch.cat(listed) == 1).all()
        assert (whole == 5).all()
