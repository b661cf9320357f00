"""Valid and invalid counts, displacements and buffers of collectives with blocks of different lengths."""

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from tests.mpi.native import RANK, SIZE
from tests.mpi.varying import TABLES, VARYING, check, wrong

pytestmark = pytest.mark.mpi


ONE = np.ones(1)
RECV = np.full(2 * SIZE, -1.0)
ONES = [1] * SIZE


@pytest.mark.parametrize(
    "error, pattern, counts",
    [
        (ValueError, rf"counts has {SIZE + 1} items?; expected {SIZE}", [1] * (SIZE + 1)),
        (ValueError, rf"counts has {SIZE - 1} items?; expected {SIZE}", [1] * (SIZE - 1)),
        (ValueError, "counts=.*negative", [1] * (SIZE - 1) + [-1]),
        (TypeError, "counts=.*integers", [1.0] * SIZE),
        (TypeError, "counts=.*integers", ["1"] * SIZE),
        (ValueError, f"displs has {SIZE + 1} items", (ONES, range(SIZE + 1))),
        (ValueError, "displs=.*negative", (ONES, range(-1, SIZE - 1))),
        (TypeError, "displs=.*integers", (ONES, [0.5] * SIZE)),
    ],
)
def test_wrong_counts(error, pattern, counts):
    wrong(error, pattern, "allgatherv", ONE, [RECV, counts])
    wrong(error, pattern, "alltoallv", [RECV.copy(), counts], [RECV, ONES])
    wrong(error, pattern, "alltoallv", [RECV.copy(), ONES], [RECV, counts])
    if RANK == 0:
        wrong(error, pattern, "gatherv", ONE, [RECV, counts])
        wrong(error, pattern, "scatterv", [RECV, counts], ONE.copy())
    if isinstance(counts, list):
        wrong(error, "recv" + pattern, "reduce_scatter", RECV, recvcounts=counts)
        wrong(error, pattern, "allgatherv", ONE, [None, counts])
        types = [MPI.DOUBLE] * SIZE
        wrong(error, pattern, "alltoallw", [RECV.copy(), counts, [0] * SIZE, types], [RECV, ONES, ONES, types])


@pytest.mark.parametrize("bad", [([1] * SIZE, [*range(SIZE - 1), 2 * SIZE]), [1] * (SIZE - 1) + [SIZE + 2]])
def test_blocks_that_lead_out_of_the_buffer(bad):
    mine = np.ones(bad[RANK] if isinstance(bad, list) else 1)
    wrong(ValueError, "recvbuf.*bytes", "allgatherv", mine, [RECV, bad])
    wrong(ValueError, "sendbuf.*bytes", "alltoallv", [RECV.copy(), bad], [np.empty(4 * SIZE), bad])
    if RANK == 0:
        wrong(ValueError, "recvbuf.*bytes", "gatherv", mine, [RECV, bad])
        wrong(ValueError, "sendbuf.*bytes", "scatterv", [RECV, bad], mine)
    assert (RECV == -1).all()


def test_other_blocks_that_do_not_fit():
    types = [MPI.DOUBLE] * SIZE
    far = [RECV, ONES, [8 * i for i in range(SIZE - 1)] + [RECV.nbytes - 4], types]
    wrong(ValueError, "recvbuf.*bytes", "alltoallw", [RECV.copy(), ONES, list(range(0, 8 * SIZE, 8)), types], far)
    wrong(ValueError, "types has", "alltoallw", [RECV, types[1:]], [RECV, types])
    wrong(ValueError, "sendbuf.*recvcounts", "reduce_scatter", RECV, recvcounts=ONES)
    wrong(ValueError, "recvbuf.*recvcounts", "reduce_scatter", MPI.IN_PLACE, RECV, recvcounts=ONES)
    wrong(ValueError, "recvbuf has 3 elements", "reduce_scatter", RECV, np.empty(3), recvcounts=[2] * SIZE)


def test_blocks_that_overlap():
    if SIZE > 1:
        for counts, displs in ((ONES, [0] * SIZE), ([2] * SIZE, range(SIZE)), ([2] * SIZE, range(SIZE, 0, -1))):
            mine = np.ones(counts[RANK])
            wrong(ValueError, "recvbuf.*overlap", "allgatherv", mine, [RECV, (counts, displs)])
            many = np.ones(2 * SIZE)
            wrong(ValueError, "recvbuf.*overlap", "alltoallv", [many, counts], [RECV, counts, displs, MPI.DOUBLE])
            wrong(ValueError, "recvbuf.*overlap", "alltoallv", MPI.IN_PLACE, [RECV, (counts, displs)])
            if RANK == 0:
                wrong(ValueError, "recvbuf.*overlap", "gatherv", mine, [RECV, (counts, displs)])
    if SIZE > 1:
        wrong(ValueError, "sendbuf and recvbuf overlap", "alltoallv", [RECV, ONES], [RECV, (ONES, range(1, SIZE + 1))])
    wrong(ValueError, "sendbuf and recvbuf overlap", "allgatherv", RECV[:1], [RECV, ONES])


def test_what_is_sent_may_overlap_and_share_a_buffer():
    """Blocks to send may overlap; one array may hold both send and receive blocks if these do not overlap."""
    displs = [0] * SIZE
    result = pycoll.alltoallv([np.full(1, float(RANK)), (ONES, displs)], [None, ONES])
    np.testing.assert_array_equal(result, np.arange(SIZE))
    if RANK == 0:
        np.testing.assert_array_equal(pycoll.scatterv([np.full(1, 5.0), (ONES, displs)]), [5.0])
    else:
        np.testing.assert_array_equal(pycoll.scatterv(None, np.empty(1)), [5.0])
    both = np.full(2 * SIZE, float(RANK))
    pycoll.alltoallv([both, (ONES, range(0, 2 * SIZE, 2))], [both, (ONES, range(1, 2 * SIZE, 2))])
    np.testing.assert_array_equal(both[1::2], np.arange(SIZE))
    assert (both[::2] == RANK).all()


def test_a_block_of_another_size_for_oneself():
    other = [1 + (i == RANK) for i in range(SIZE)]
    less, more = (rf"{sent} bytes to itself \(sendbuf.* {received} \(recvbuf" for sent, received in ((8, 16), (16, 8)))
    wrong(ValueError, less, "allgatherv", ONE, [RECV, other])
    wrong(ValueError, more, "alltoallv", [RECV.copy(), other], [RECV, ONES])
    if RANK == 0:
        wrong(ValueError, less, "gatherv", ONE, [RECV, other])
        wrong(ValueError, less, "scatterv", [RECV, ONES], np.empty(2))


def test_missing_and_unfit_receive_buffers():
    wrong(TypeError, "recvbuf=None", "allgatherv", ONE)
    wrong(TypeError, "recvbuf=None", "alltoallv", [RECV, ONES])
    wrong(TypeError, "recvbuf=None", "alltoallv", MPI.IN_PLACE)
    wrong(TypeError if RANK == 0 else ValueError, "recvbuf=None|IN_PLACE", "gatherv", MPI.IN_PLACE)
    if RANK:
        wrong(TypeError, "recvbuf=None", "scatterv", None)
        wrong(ValueError, "recvbuf=MPI.IN_PLACE is not allowed", "scatterv", None, MPI.IN_PLACE)
    else:
        wrong(TypeError, "recvbuf=None", "gatherv", ONE)
    readonly = RECV.copy()
    readonly.flags.writeable = False
    wrong(ValueError, "recvbuf is read-only", "allgatherv", ONE, [readonly, ONES])
    wrong(ValueError, "recvbuf is not contiguous", "allgatherv", ONE, [np.empty(4 * SIZE)[::2], ONES])
    wrong(ValueError, "recvbuf=MPI.IN_PLACE is not allowed", "allgatherv", ONE, MPI.IN_PLACE)
    wrong(ValueError, "recvbuf has 0 bytes", "allgatherv", MPI.IN_PLACE, [None, ONES])


def test_missing_send_buffers():
    """A missing send buffer is an error even on a rank that receives nothing, since others wait for their blocks."""
    if RANK == 0:
        wrong(TypeError, "sendbuf", "scatterv", None, ONE.copy())
        wrong(TypeError, "sendbuf", "scatterv", None, np.empty(0))
    wrong(TypeError, "sendbuf", "gatherv", None, [None, ONES])
    wrong(TypeError, "sendbuf", "allgatherv", None, [RECV, ONES])
    wrong(TypeError, "sendbuf", "allgatherv", None, [RECV, [0] * SIZE])
    wrong(TypeError, "sendbuf", "alltoallv", None, [RECV, ONES])


def test_unequal_dtypes():
    """Unequal dtypes are refused, as with equal blocks; a datatype given by the caller overrides the dtype."""
    single, double = np.ones(2, "f4"), [np.empty(SIZE), ONES]
    wrong(TypeError, "sendbuf has dtype float32, recvbuf has dtype float64", "allgatherv", single, double)
    wrong(TypeError, "float32.*float64", "alltoallv", [np.ones(2 * SIZE, "f4"), [2] * SIZE], double)
    counts = [8] * SIZE
    result = pycoll.allgatherv([single, 8, MPI.BYTE], [double[0], counts, None, MPI.BYTE])
    assert (result.view("f4") == 1).all()


def test_a_tuple_is_counts_and_displacements_also_where_memory_is_allocated():
    """One number holds for all ranks; the result extends to the end of the last block, with zeros in the gaps."""
    np.testing.assert_array_equal(pycoll.allgatherv(ONE, [None, (1, 2)]), [*[1, 0] * (SIZE - 1), 1])
    displs = list(range(SIZE, 0, -1))
    exchanged = pycoll.alltoallv([np.full(SIZE, 1.0 + RANK), ONES], [None, (ONES, displs)])
    np.testing.assert_array_equal(exchanged, [0, *displs])
    gathered = pycoll.gatherv(ONE + RANK, (None, (ONES, displs)))
    assert (gathered is None) if RANK else gathered.tolist() == [0, *displs]


def test_after_all_these_errors_the_world_is_in_order():
    for primitive in VARYING:
        check(primitive, None, TABLES["drawn"])
