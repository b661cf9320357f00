"""The optimizers reproduce recorded results of PyTorch, and give the same bits however parameters are split."""

import re
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("mpi4py")

from pycoll.parallel import SGD, Adam, AdamW, optimizers
from tests.gpu.standin import installed
from tests.gpu.standin import ndarray as Device

START = [-1.5, 0.25, 0.0, 2.0]


def gradient(step):
    """Return a gradient that is exact in binary, as used with PyTorch 2.13 to compute the values below."""
    return np.array([((7 * i + 3 * step) % 11 - 5) / 4 for i in range(4)])


# the parameters after each step, in float64
TORCH = {
    "SGD": (
        partial(SGD, lr=0.1),
        [
            [-1.375, 0.2, 0.05, 1.875],
            [-1.325, 0.07500000000000001, 0.025, 1.95],
            [-1.3499999999999999, 0.15000000000000002, -0.07500000000000001, 1.95],
            [-1.45, 0.15000000000000002, 0.024999999999999994, 1.875],
        ],
    ),
    "SGD's defaults": (
        SGD,
        [
            [-1.49875, 0.2495, 0.0005, 1.99875],
            [-1.49825, 0.24825, 0.00025, 1.9995],
            [-1.4985000000000002, 0.249, -0.00075, 1.9995],
            [-1.4995, 0.249, 0.00025, 1.99875],
        ],
    ),
    "weight decay": (
        partial(SGD, lr=0.1, weight_decay=0.3),
        [
            [-1.33, 0.1925, 0.05, 1.815],
            [-1.2401, 0.061725, 0.0235, 1.83555],
            [-1.227897, 0.13487325, -0.07720500000000001, 1.7804835],
            [-1.29106009, 0.1308270525, 0.025111150000000002, 1.652068995],
        ],
    ),
    "momentum": (
        partial(SGD, lr=0.1, momentum=0.9),
        [
            [-1.375, 0.2, 0.05, 1.875],
            [-1.2125, 0.030000000000000006, 0.07, 1.8375],
            [-1.0912499999999998, -0.048, -0.011999999999999993, 1.80375],
            [-1.0821249999999998, -0.11820000000000001, 0.01420000000000001, 1.698375],
        ],
    ),
    "dampening": (
        partial(SGD, lr=0.1, momentum=0.9, dampening=0.4),
        [
            [-1.375, 0.2, 0.05, 1.875],
            [-1.2325, 0.08000000000000002, 0.08000000000000002, 1.8074999999999999],
            [-1.1192499999999999, 0.017, 0.04700000000000002, 1.7467499999999998],
            [-1.0773249999999999, -0.03970000000000002, 0.07730000000000002, 1.6470749999999998],
        ],
    ),
    "full dampening, weight decay": (
        partial(SGD, lr=0.1, momentum=0.8, dampening=1.0, weight_decay=0.3),
        [
            [-1.33, 0.1925, 0.05, 1.815],
            [-1.194, 0.14650000000000002, 0.09000000000000001, 1.6669999999999998],
            [-1.0852, 0.10970000000000002, 0.12200000000000003, 1.5485999999999998],
            [-0.9981599999999999, 0.08026000000000001, 0.14760000000000004, 1.4538799999999998],
        ],
    ),
    "Nesterov, weight decay": (
        partial(SGD, lr=0.1, momentum=0.7, nesterov=True, weight_decay=0.3),
        [
            [-1.211, 0.15225, 0.085, 1.6855],
            [-0.9809390000000001, -0.09618975000000002, 0.062665, 1.6363895],
            [-0.8727994110000001, -0.04699464775, -0.10688041500000003, 1.5014517855],
            [-0.9256886477390002, -0.06468133388974999, 0.021204660664999955, 1.2372855237895],
        ],
    ),
    "Adam's defaults": (
        Adam,
        [
            [-1.499000000008, 0.24900000002, 0.0009999999800000003, 1.999000000008],
            [-1.498101424812868, 0.2480602925943297, 0.0012663370129215364, 1.9988085019746307],
            [-1.4975352555411614, 0.2477368288733485, 0.0008090052298264488, 1.9986604734401385],
            [-1.4975039527881797, 0.24747186707573673, 0.0009091685120048162, 1.9982865306661646],
        ],
    ),
    "Adam": (
        partial(Adam, lr=0.1, betas=(0.7, 0.8), eps=0.01),
        [
            [-1.4007936507936507, 0.1519607843137255, 0.09803921568627451, 1.9007936507936507],
            [-1.313151543556123, 0.0577987405342323, 0.11304976306987818, 1.8935384102455475],
            [-1.2685423915804475, 0.039214688281392296, 0.0535908095790153, 1.8884218586448909],
            [-1.2922369077723386, 0.025418170906506107, 0.07026133069076534, 1.8470362306256485],
        ],
    ),
    "Adam, weight decay": (
        partial(Adam, lr=0.1, weight_decay=0.3),
        [
            [-1.4000000005882354, 0.15000000173913042, 0.09999999800000003, 1.9000000005405406],
            [-1.3056460219481487, 0.054803153792504264, 0.1220833758939206, 1.840519211198398],
            [-1.2282313248930792, 0.018845456490708047, 0.07441787714523107, 1.7782399653402368],
            [-1.185972265874995, -0.010814828869638828, 0.08132280287659822, 1.7036106541465437],
        ],
    ),
    "Adam, all rates": (
        partial(Adam, lr=0.1, betas=(0.5, 0.6), eps=0.5, weight_decay=0.3),
        [
            [-1.4227272727272728, 0.19651162790697674, 0.05, 1.921276595744681],
            [-1.355918384667051, 0.12970398067620018, 0.04885189370810242, 1.8907544109997698],
            [-1.3131952112712668, 0.1261931307235205, 0.002855565101302006, 1.8521451862996163],
            [-1.3166789783886688, 0.12249887566221095, 0.021681759709921335, 1.7930233149860209],
        ],
    ),
    "Adam without means": (
        partial(Adam, lr=0.1, betas=(0.0, 0.0), eps=0.5),
        [
            [-1.4285714285714286, 0.2, 0.05, 1.9285714285714286],
            [-1.3785714285714286, 0.1285714285714286, 0.01666666666666667, 1.9885714285714287],
            [-1.411904761904762, 0.1885714285714286, -0.049999999999999996, 1.9885714285714287],
            [-1.4785714285714286, 0.1885714285714286, 0.01666666666666667, 1.9285714285714286],
        ],
    ),
    "AdamW's defaults": (
        AdamW,
        [
            [-1.498985000008, 0.24899750002, 0.0009999999800000003, 1.998980000008],
            [-1.498071434962868, 0.24805530261932954, 0.0012663270129217364, 1.9987685121746308],
            [-1.4974902849768121, 0.24772935834532214, 0.0008089825665565197, 1.998600495955017],
            [-1.4974440073209807, 0.24746191925412694, 0.0009091377589092216, 1.9982065671760836],
        ],
    ),
    "AdamW": (
        partial(AdamW, lr=0.1, betas=(0.7, 0.8), eps=0.01, weight_decay=0.3),
        [
            [-1.3557936507936508, 0.1444607843137255, 0.09803921568627451, 1.8407936507936506],
            [-1.2274777340323135, 0.04596491700482051, 0.11010858659928995, 1.7783146007217379],
            [-1.1460442500356687, 0.026001917241835888, 0.04734637551044836, 1.719848611099429],
            [-1.1353574387264898, 0.011425342349694622, 0.06259650535688496, 1.6268675247472038],
        ],
    ),
}
COMPLEX_ADAM = [
    -1.2535255541161607 + 1.2435207662196928j,
    0.023682887334851334 + 0.4964744458838391j,
    0.08090052298264488 - 0.9763171126651486j,
    1.8660473440138488 + 1.0809005229826447j,
]
KINDS = [
    partial(SGD, lr=0.1, weight_decay=0.3),
    partial(SGD, lr=0.1, momentum=0.9, dampening=0.4, weight_decay=0.3),
    partial(SGD, lr=0.1, momentum=0.9, nesterov=True),
    partial(Adam, lr=0.1, weight_decay=0.3),
    partial(AdamW, lr=0.1, weight_decay=0.3),
]
each_kind = pytest.mark.parametrize("make", KINDS, ids=lambda make: "-".join([make.func.__name__, *make.keywords]))


def close(to):
    return pytest.approx(np.array(to), rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("case", TORCH)
def test_steps_are_those_of_pytorch(case):
    make, expected = TORCH[case]
    parameters = {"w": np.array(START)}
    optimizer = make(parameters)
    for step, after in enumerate(expected):
        optimizer.step({"w": gradient(step)})
        assert parameters["w"] == close(after), f"after step {step}"
    assert optimizer.steps == {"w": len(expected)}


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            partial(SGD, lr=0.1, momentum=0.8, dampening=0.4, weight_decay=0.3),
            {"momentum": [-0.8366502856000003, 0.44857594659999994, -0.257801284, 1.8374134108000002]},
        ),
        (
            partial(Adam, lr=0.1, weight_decay=0.3),
            {
                "mean": [-0.14804938235368645, 0.08135754888937971, -0.0182412125851072, 0.2983262176756989],
                "square": [0.004144934673458153, 0.002540909485146485, 0.002356858549046552, 0.005396449455536465],
            },
        ),
        (SGD, {}),
    ],
    ids=["SGD", "Adam", "no momentum"],
)
def test_state_is_that_of_pytorch_after_four_steps(make, expected):
    optimizer = make({"w": np.array(START)})
    for step in range(4):
        optimizer.step({"w": gradient(step)})
    assert {kept: [*arrays] for kept, arrays in optimizer.state.items()} == {kept: ["w"] for kept in expected}
    for kept, values in expected.items():
        assert optimizer.state[kept]["w"] == close(values)


@pytest.mark.parametrize(
    ("make", "w", "b"),
    [
        (
            partial(SGD, lr=0.1, momentum=0.9, dampening=0.4),
            [-0.9573249999999999, -0.08470000000000001, 0.03230000000000002, 1.7670749999999997],
            [-1.2355, -0.09925, -0.06925, 2.3757500000000005],
        ),
        (
            partial(Adam, lr=0.1, betas=(0.7, 0.8)),
            [-1.194462735353237, -0.010683974321207018, 0.028305958716724942, 1.9363580974158938],
            [-1.2184487196426972, 0.05936512053862211, -0.13709288428258656, 2.289876799675759],
        ),
        (
            partial(AdamW, lr=0.1, weight_decay=0.3),
            [-1.0254675073081634, -0.03900661406752337, 0.0477645766632192, 1.6756000513155398],
            [-1.0945401209161387, 0.02664029706719237, -0.13880894626875212, 2.10736011951382],
        ),
    ],
    ids=["SGD", "Adam", "AdamW"],
)
def test_parameters_without_a_gradient_are_left_as_they_are(make, w, b):
    """Check that there is no decay, no momentum and no step count, as in PyTorch if `grad` is None."""
    parameters = {"w": np.array(START), "b": np.array(START)}
    optimizer = make(parameters)
    for step, names in enumerate(["w", "wb", "w", "", "wb", "b"]):
        optimizer.step({name: gradient(step) for name in names})
    assert parameters["w"] == close(w) and parameters["b"] == close(b)
    assert optimizer.steps == {"w": 4, "b": 3}


def trained(make, parameters, gradients):
    """Return the parameters and the optimizer state after the given steps, each as a flat vector."""
    parameters = {name: array.copy() for name, array in parameters.items()}
    optimizer = make(parameters)
    for step in gradients:
        optimizer.step(step)
    groups = [parameters, *optimizer.state.values()]
    return [np.concatenate([array.reshape(-1) for array in group.values()]) for group in groups]


def same_bits(one, other):
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other))


@each_kind
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_long_parameters_have_the_bits_of_their_pieces(make, dtype):
    size = 2 * optimizers.BLOCK + 1234
    random = np.random.default_rng(1)
    values, *gradients = random.standard_normal((4, size)).astype(dtype)
    whole = trained(make, {"w": values}, [{"w": gradient} for gradient in gradients])
    cuts = [0, 7, 1000, optimizers.BLOCK - 3, optimizers.BLOCK + 5, size - 1, size]
    pieces = {f"{start}": slice(start, stop) for start, stop in pairwise(cuts)}
    parts = [{name: array[piece] for name, piece in pieces.items()} for array in (values, *gradients)]
    assert same_bits(whole, trained(make, parts[0], parts[1:]))
    for place in (0, optimizers.BLOCK, size - 1):
        alone = slice(place, place + 1)
        one = trained(make, {"w": values[alone]}, [{"w": gradient[alone]} for gradient in gradients])
        assert same_bits([array[alone] for array in whole], one)


@each_kind
@given(cuts=st.sets(st.integers(1, 29)), block=st.integers(1, 31))
def test_shards_train_as_the_whole(make, cuts, block):
    random = np.random.default_rng(2)
    values, *gradients = random.standard_normal((3, 5, 6))
    whole = trained(make, {"w": values}, [{"w": gradient} for gradient in gradients])
    parts = [dict(enumerate(np.split(array.reshape(-1), sorted(cuts)))) for array in (values, *gradients)]
    parts = [{str(number): part for number, part in some.items()} for some in parts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimizers, "BLOCK", block)
        assert same_bits(whole, trained(make, parts[0], parts[1:]))


@each_kind
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1, 4, 1), (2, 3)])
def test_parameters_have_any_shape(make, shape):
    size = int(np.prod(shape, dtype=int))
    flat, *gradients = np.random.default_rng(3).standard_normal((3, size))
    expected = trained(make, {"w": flat}, [{"w": gradient} for gradient in gradients])
    shaped = [{"w": gradient.reshape(shape)} for gradient in gradients]
    assert same_bits(expected, trained(make, {"w": flat.reshape(shape)}, shaped))


@each_kind
def test_gradients_may_be_views_that_must_not_be_written(make):
    values = np.arange(12.0).reshape(3, 4)
    transposed = np.asfortranarray(np.sin(values))
    repeated = np.broadcast_to(np.cos(np.arange(4.0)), (3, 4))
    transposed.flags.writeable = False
    expected = trained(make, {"w": values}, [{"w": transposed.copy("C")}, {"w": repeated.copy()}])
    assert same_bits(expected, trained(make, {"w": values}, [{"w": transposed}, {"w": repeated}]))


@each_kind
def test_gradients_are_not_changed(make):
    given = gradient(0)
    optimizer = make({"w": np.array(START)})
    for _ in range(3):
        optimizer.step({"w": given})
    assert np.array_equal(given, gradient(0))
    assert not any(np.shares_memory(given, arrays["w"]) for arrays in optimizer.state.values())


@each_kind
@pytest.mark.parametrize("dtype", ["f4", "f2", "bfloat16"])
def test_short_dtypes_stay(make, dtype):
    tolerance = {"f4": 1e-6, "f2": 4e-3, "bfloat16": 4e-2}[dtype]
    if dtype == "bfloat16":
        dtype = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    start, gradients = np.array(START), [{"w": gradient(step)} for step in range(4)]
    expected = trained(make, {"w": start}, gradients)
    outcome = trained(make, {"w": start.astype(dtype)}, [{"w": step["w"].astype(dtype)} for step in gradients])
    assert {array.dtype for array in outcome} == {np.dtype(dtype)}
    for array, right in zip(outcome, expected):
        assert array.astype(float) == pytest.approx(right, rel=tolerance, abs=tolerance)


@each_kind
@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 4)])
def test_complex_parameters_train_as_their_real_and_imaginary_parts(make, dtype, shape):
    random = np.random.default_rng(4)
    real = np.array(0, dtype).real.dtype
    values, *gradients = random.standard_normal((3, *shape, 2)).astype(real)
    expected = trained(make, {"w": values}, [{"w": gradient} for gradient in gradients])
    paired = [array.view(dtype).reshape(shape) for array in (values, *gradients)]
    outcome = trained(make, {"w": paired[0]}, [{"w": gradient} for gradient in paired[1:]])
    assert {array.dtype for array in outcome} == {np.dtype(dtype)}
    assert same_bits(expected, [array.view(real) for array in outcome])


def test_complex_steps_are_those_of_pytorch():
    parameters = {"w": START + 1j * gradient(7)}
    optimizer = Adam(parameters, lr=0.1)
    for step in range(3):
        optimizer.step({"w": gradient(step) + 1j * gradient(step + 5)})
    assert parameters["w"] == close(COMPLEX_ADAM)


@each_kind
def test_gradients_of_complex_parameters_may_be_real_or_views(make):
    values = np.arange(6.0) * (1 + 2j)
    for each in (np.sin(np.arange(6.0)), np.exp(1j * np.arange(12.0))[::2], np.exp(1j * np.arange(6.0))[::-1]):
        copied = each.astype(complex, "C", copy=True)
        expected = trained(make, {"w": values}, [{"w": copied}] * 2)
        assert same_bits(expected, trained(make, {"w": values}, [{"w": each}] * 2))


@pytest.fixture
def stand_in():
    with installed():
        yield


@pytest.mark.usefixtures("stand_in")
@each_kind
def test_devices_update_whole_arrays_where_they_lie(make):
    """The number of kernels does not depend on the length of an array; the host updates long ones in pieces."""
    launches = []
    for length in (4, 2 * optimizers.BLOCK + 4):
        start, gradients = np.resize(START, length), [np.resize(gradient(step), length) for step in range(3)]
        expected = trained(make, {"w": start}, [{"w": array} for array in gradients])
        parameters = {"w": Device.on(start), "empty": Device.on(np.zeros((0, 3)))}
        optimizer = make(parameters)
        before = Device.launches
        for array in gradients:
            optimizer.step({"w": Device.on(array), "empty": Device.on(np.zeros((0, 3)))})
        launches.append(Device.launches - before)
        outcome = [parameters, *optimizer.state.values()]
        assert all(isinstance(arrays["w"], Device) for arrays in outcome)
        assert same_bits(expected, [arrays["w"].get() for arrays in outcome])
    assert launches[0] == launches[1] > 0


@pytest.mark.parametrize("wrong", ["x", "shape", "scalar"])
@each_kind
def test_a_wrong_gradient_changes_nothing(make, wrong):
    parameters = {"w": np.array(START), "b": np.ones(2)}
    optimizer = make(parameters)
    odd, message = {
        "x": ({"x": np.ones(2)}, r"gradients\['x'\]: there is no such parameter"),
        "shape": ({"b": np.ones((2, 1))}, r"gradients\['b'\] has shape \(2, 1\), but its parameter has \(2,\)"),
        "scalar": ({"b": np.ones(())}, r"gradients\['b'\] has shape \(\), but its parameter has \(2,\)"),
    }[wrong]
    with pytest.raises(ValueError, match=message):
        optimizer.step({"w": gradient(0)} | odd)
    assert parameters["w"].tolist() == START and parameters["b"].tolist() == [1, 1]
    assert optimizer.steps == {"w": 0, "b": 0}
    assert not any(array.any() for arrays in optimizer.state.values() for array in arrays.values())


@pytest.mark.parametrize(
    ("kind", "rates", "message"),
    [
        (SGD, {"lr": -0.1}, "lr=-0.1 is negative"),
        (SGD, {"lr": float("nan")}, "lr=nan"),
        (SGD, {"momentum": -0.5}, "momentum=-0.5 is negative"),
        (SGD, {"weight_decay": -1}, "weight_decay=-1 is negative"),
        (SGD, {"nesterov": True}, "needs momentum and no dampening, not momentum=0.0 and dampening=0.0"),
        (SGD, {"nesterov": True, "momentum": 0.9, "dampening": 0.1}, "needs momentum and no dampening"),
        *(
            (kind, rates, message)
            for kind in (Adam, AdamW)
            for rates, message in (
                ({"lr": -0.1}, "lr=-0.1 is negative"),
                ({"eps": -1e-8}, "eps=-1e-08 is negative"),
                ({"weight_decay": -1}, "weight_decay=-1 is negative"),
                ({"betas": (1.0, 0.9)}, r"betas=\(1.0, 0.9\) are not both in"),
                ({"betas": (0.9, 1.0)}, r"betas=\(0.9, 1.0\) are not both in"),
                ({"betas": (-0.1, 0.9)}, r"betas=\(-0.1, 0.9\) are not both in"),
            )
        ),
    ],
)
def test_rates_are_checked(kind, rates, message):
    with pytest.raises(ValueError, match=message):
        kind({"w": np.ones(2)}, **rates)


def test_parameters_are_checked():
    with pytest.raises(ValueError, match=r"parameters\['w'\] is not C-contiguous"):
        SGD({"w": np.ones((2, 3)).T})
    with pytest.raises(TypeError, match="parameters must be a mapping"):
        Adam([np.ones(2)])


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW])
@pytest.mark.parametrize("wrong", ["0.1", None, [0.1]])
def test_rates_are_numbers(kind, wrong):
    names = ["lr", "momentum", "dampening", "weight_decay"] if kind is SGD else ["lr", "eps"]
    for name in names:
        with pytest.raises(TypeError, match=rf"^{name}={re.escape(repr(wrong))} is not a number$"):
            kind({"w": np.ones(2)}, **{name: wrong})


def test_numbers_of_other_types_are_rates():
    for number in (1, np.float32(0.5), np.int64(1), np.array(0.5)):
        SGD({"w": np.ones(2)}, lr=number, momentum=number)


def test_betas_are_a_pair_of_numbers():
    for betas in (0.9, (0.9,), None):
        with pytest.raises(TypeError, match=r"^betas=.* is not a pair of numbers$"):
            Adam({"w": np.ones(2)}, betas=betas)
    with pytest.raises(TypeError, match=r"^betas\[1\]='0.9' is not a number$"):
        Adam({"w": np.ones(2)}, betas=(0.9, "0.9"))
