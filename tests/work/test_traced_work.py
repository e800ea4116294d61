"""Work that other events of a trace tell: the kernels of torch's ops, and their gradients.

torch up to 1.12 recorded no arguments but tensors, and no version records what is in lists."""

from __future__ import annotations

import math
from typing import Any

import pytest
from helpers.hand_traces import BF16, FLOAT, Program
from helpers.work_cases import INT, LONG, UNKNOWN, is_unknown, numbers, rows_of

import flopscope as fs

Shape = list[int]
Numbers = tuple[float, float, float]


class Old(Program):
    """Successive or nested ops of a trace without numbers, in which each leaf op has a kernel of 5 µs."""

    now = 0

    def then(self, name: str, shapes: list[Shape], *inner: tuple[str, list[Shape]], **more: Any) -> Old:
        begin, types = self.now, more.pop("dtype", [FLOAT if shape else "GenericList" for shape in shapes])
        self.now += 1
        for inner_name, inner_shapes in inner:
            self.then(inner_name, inner_shapes)
        if inner:
            self.op(name, begin, self.now - begin, *shapes, dtype=types)
        else:
            self.run(name, begin, self.now + 2, 5, *shapes, **{"kernel": "k", "dtype": types, **more})
        self.now += 12
        return self

    def rows(self) -> dict[str, fs.EventRow]:
        return rows_of(self)


# Lists ----------------------------------------------------------------------------------------------------------------

SPACE = "at::native::(anonymous namespace)::"
CAT = f"void {SPACE}CatArrayBatchedCopy<{SPACE}OpaqueType<2u>, unsigned int, 4, 64, 64>(x)"
ADD = (
    f"void {SPACE}multi_tensor_apply_kernel<{SPACE}TensorListMetadata<1>, "
    f"{SPACE}BinaryOpScalarFunctor<double, 1, 1, 0>, std::plus<double>, double>(x)"
)
ESTIMATED = 2 * 3 * 65536  # elements of two kernels of three blocks, at most 65536 a block


@pytest.mark.parametrize(
    ("name", "tensors", "kernels", "wanted"),
    [
        ("aten::cat", [[6, 10], [4, 10]], [CAT], (0, 200, 200)),
        ("aten::cat", [[6, 10], [4, 10]], [CAT, CAT], (0, 200, 200)),
        ("aten::_foreach_add_", [[100], [20, 10]], [ADD, ADD], (300, 8 * 300, 8 * 300)),
        ("aten::_foreach_add_", [], [ADD, ADD], (ESTIMATED, 8 * ESTIMATED, 8 * ESTIMATED)),
        ("aten::cat", [], [CAT], (0, *UNKNOWN[1:])),
        ("aten::_foreach_add_", [[100]], ["somebodys_kernel"], UNKNOWN),
    ],
)
def test_kernels_tell_the_dtype_of_lists_and_blocks_their_elements(
    name: str, tensors: list[Shape], kernels: list[str], wanted: Numbers
) -> None:
    program = Program(0)
    program.op(name, 0, 90, *[], External_id=7, Input_Dims=[tensors, []], Input_type=["TensorList", "Scalar"],
               Concrete_Inputs=["", "0"])  # fmt: skip
    for i, kernel in enumerate(kernels):
        program.call("cudaLaunchKernel", 10 * i + 5, 2, correlation=i + 1)
        program.work(kernel, 10 * i + 20, 5, correlation=i + 1, blocks=3)
    row, coverage = rows_of(program)[name], program.load().coverage()
    assert numbers(row) == pytest.approx(wanted, nan_ok=True)
    assert ("estimated" in coverage) == (wanted[0] == ESTIMATED) and coverage["bytes"] == (wanted[1] > 0)


# Upper limits ---------------------------------------------------------------------------------------------------------

INDEX = (
    "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index_kernel_impl<"
    "at::native::OpaqueType<4> >(at::TensorIteratorBase&)::{lambda(char*, char const*, long)#1}>(x)>(x)"
)
GATHER = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)"


@pytest.mark.parametrize(
    ("kernel", "blocks", "elements", "shape"),
    [
        (INDEX, 3, 3 * 512, [1000, 8]),
        (GATHER, 10, 10 * 128, [1000, 8]),
        (INDEX, 3, None, [100]),  # each element counts once, however often it is read
        ("somebodys_kernel", 3, math.nan, [1000, 8]),
    ],
)
def test_grids_limit_what_an_index_selects(kernel: str, blocks: int, elements: float | None, shape: Shape) -> None:
    program = Program()
    program.run("aten::index", 0, 20, 10, shape, [], kernel=kernel, dtype=[FLOAT, ""], values=["", ""], blocks=blocks,
                block=[128, 1, 1])  # fmt: skip
    row, coverage = rows_of(program)["aten::index"], program.load().coverage()
    if elements is None:
        assert row.bytes_read == 400
        return
    known = not math.isnan(elements)
    assert numbers(row)[1:] == pytest.approx((4 * elements, 4 * elements), nan_ok=True)
    assert coverage["bytes"] == known and (not known or coverage["estimated"] == [("aten::index", 10)])


@pytest.mark.parametrize(("us", "has_rate"), [(100, True), (1, False)])
def test_an_upper_limit_above_the_roofline_has_no_rate(us: float, has_rate: bool) -> None:
    """2 · 4096 · 4096 · 2048 FLOPs take 70 µs at the 989 TFLOP/s of an H200."""
    program = Program()
    program.run("aten::_grouped_mm", 0, 20, us, [4096, 4096], [8, 4096, 2048], [8], [], [],
                dtype=[BF16, BF16, INT, "", ""], values=[""] * 5)  # fmt: skip
    row = rows_of(program)["aten::_grouped_mm"]
    assert row.flops == 2 * 4096 * 4096 * 2048 and program.load().coverage()["estimated"]
    assert math.isnan(row.pct_roofline) != has_rate and (row.bound == "compute") == has_rate
    assert math.isnan(row.tflops_per_s) != has_rate


def test_upper_limits_are_estimates_on_a_cpu_as_well() -> None:
    program = Program(0)
    program.op("aten::nonzero", 0, 9, [6, 10], values=[""])
    assert program.load().coverage()["estimated"] == [("aten::nonzero", 9)]


# Convolutions without numbers -----------------------------------------------------------------------------------------

CONVOLVED = "aten::cudnn_convolution"
NOTHING: list[Shape] = [[], [], [], [], [], [], []]


def backward(name: str, image: Shape, out: Shape, weight: Shape) -> tuple[str, list[Shape]]:
    return f"{name}_backward", [image, out, weight, [], [], [], []]


def parts(name: str, image: Shape, out: Shape, weight: Shape) -> list[tuple[str, list[Shape]]]:
    sizes: list[Shape] = [] if "transpose" in name else [[]]
    return [
        (f"{name}_backward_input", [*sizes, out, weight, [], []]),
        (f"{name}_backward_weight", [[], out, image, [], []]),
    ]


def convolved(image: Shape, out: Shape, weight: Shape, name: str = CONVOLVED) -> Old:
    """Return a program with a convolution, which records no geometry, and its gradient, which tells the result."""
    program = Old().then(name, [image, weight, *NOTHING])
    return program.then(*backward(name, image, out, weight), *parts(name, image, out, weight))


@pytest.mark.parametrize(
    ("name", "weight", "out", "flops"),
    [  # of images (2, 4, 11, 13)
        (CONVOLVED, [6, 4, 3, 3], [2, 6, 9, 11], 2 * 2 * 6 * 9 * 11 * 4 * 9),
        (CONVOLVED, [6, 4, 3, 3], [2, 6, 8, 9], 2 * 2 * 6 * 8 * 9 * 4 * 9),  # stride 2, padding 3
        (CONVOLVED, [6, 2, 3, 3], [2, 6, 9, 11], 2 * 2 * 6 * 9 * 11 * 2 * 9),  # two groups
        # each input element is multiplied with the kernel of each output channel
        (f"{CONVOLVED}_transpose", [4, 6, 3, 3], [2, 6, 23, 27], 2 * 2 * 4 * 11 * 13 * 6 * 9),
    ],
)
def test_old_convolutions_infer_outputs_from_the_gradient(name: str, weight: Shape, out: Shape, flops: float) -> None:
    program = convolved([2, 4, 11, 13], out, weight, name)
    i, o, w = (4 * math.prod(shape) for shape in ([2, 4, 11, 13], out, weight))
    actual, coverage = program.rows(), program.load().coverage()
    assert numbers(actual[name]) == (flops, i + w, o) and numbers(actual[f"{name}_backward_input"]) == (flops, o + w, i)
    assert numbers(actual[f"{name}_backward_weight"]) == (flops, o + i, w)
    assert coverage["bytes"] == coverage["flops"] == 1


def test_a_convolution_is_unknown_without_a_gradient_that_agrees() -> None:
    image, weight = [2, 4, 11, 13], [6, 4, 1, 1]
    program = Old().then(CONVOLVED, [image, weight, *NOTHING])
    program.then(*backward(CONVOLVED, image, [2, 6, 11, 13], [6, 4, 5, 5]))  # of another convolution
    assert is_unknown(program.rows()[CONVOLVED]) and program.load().coverage()["bytes"] == 0
    program.then(*backward(CONVOLVED, image, [2, 6, 11, 13], weight))
    assert program.rows()[CONVOLVED].flops == 2 * 2 * 6 * 11 * 13 * 4
    program.then(*backward(CONVOLVED, image, [2, 6, 6, 7], weight))
    assert math.isnan(program.rows()[CONVOLVED].flops)
    alone = Old()
    for part in parts(CONVOLVED, [2, 4, 8, 8], [2, 6, 8, 8], [6, 4, 3, 3]):
        alone.then(*part)
    assert all(is_unknown(row) for row in alone.rows().values())


def test_pools_without_windows_infer_bytes_from_their_gradient() -> None:
    image, out, name = [2, 3, 8, 8], [2, 3, 4, 4], "aten::max_pool2d_with_indices"
    program = Old().then(name, [image, *NOTHING[:5]]).then(f"{name}_backward", [out, image, *NOTHING[:5], out])
    row = program.rows()[name]
    assert (row.bytes_read, row.bytes_written) == (4 * math.prod(image), (4 + 8) * math.prod(out))
    assert math.isnan(row.flops)


def test_kernels_from_before_a_profile_are_known_if_all_of_that_name_are() -> None:
    """ROCm's profiler takes the grid of a kernel from the launching call: one that was launched before has none."""

    def covered(*shapes: list[Shape]) -> float:
        program = Old(0)
        program.events.append({"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "ts": 0, "dur": 5, "name": "k",
                               "args": {"correlation": 999, "device": 0, "stream": 7}})  # fmt: skip
        for inputs in shapes:
            program.then("aten::add", inputs)
        return program.load().coverage()["bytes"]

    known, unknown = [[6, 10], [6, 10]], [[], [], []]
    assert covered(known) == 1 and covered() == 0 and covered(known, unknown) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("kernel", "direct"),
    [
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(x)", False),
        ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v0", False),
        ("void fft2d_r2c_32x32<float, false, 1u, false>(float2*, float const*)", False),
        ("void implicit_convolve_sgemm<float, float, 1024, 5, 5>(int)", True),
    ],
)
def test_algorithms_with_fewer_multiplications_have_no_roofline_share(kernel: str, direct: bool) -> None:
    image, weight = [2, 4, 12, 12], [6, 4, 3, 3]
    program = Old().then(CONVOLVED, [image, weight, *NOTHING], kernel=kernel)
    program.then(*backward(CONVOLVED, image, [2, 6, 12, 12], weight))
    row = program.rows()[CONVOLVED]
    assert row.flops == 2 * 2 * 6 * 12 * 12 * 4 * 9
    assert math.isnan(row.pct_roofline) != direct and math.isnan(row.pct_peak_flops) != direct


# Dtypes ---------------------------------------------------------------------------------------------------------------


def without_types(program: Program, *kernels: str) -> Program:
    """Leave out the types, and give kernels these names in turn."""
    names = [event for event in program.events if event["cat"] == "kernel"]
    for i, event in enumerate(names):
        event["name"] = kernels[i % len(kernels)]
    for event in program.events:
        event["args"].pop("Input type", None)
    return program


@pytest.mark.parametrize(
    ("kernel", "item"),
    [
        ("volta_scudnn_128x64_relu_interior_nn_v1", 4),
        ("volta_fp16_s884cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", 2),
        ("void implicit_convolve_sgemm<__half, float, 1024, 5, 5>(int)", 2),
        ("void cudnn::cnn::im2col4d_kernel<double, long>(x)", 8),
        ("unknown_kernel", math.nan),
    ],
)
def test_a_missing_dtype_is_inferred_from_kernels(kernel: str, item: float) -> None:
    image, weight, out = [2, 4, 12, 12], [6, 4, 3, 3], [2, 6, 12, 12]
    program = convolved(image, out, weight).then("aten::add_", [out, out, []])
    actual, coverage = rows_of(without_types(program, kernel)), program.load().coverage()
    i, o, w = (math.prod(shape) for shape in (image, out, weight))
    for part in ("", "_backward_input", "_backward_weight"):
        row = actual[CONVOLVED + part]
        assert row.bytes_total_moved == pytest.approx((i + o + w) * item, nan_ok=True)
        assert row.flops == 2 * o * 4 * 9 or math.isnan(item)
    assert actual["aten::add_"].bytes_total_moved == pytest.approx(3 * o * item, nan_ok=True)
    assert coverage["bytes"] == (not math.isnan(item)) and ("estimated" in coverage) == (not math.isnan(item))


def test_no_dtype_is_inferred_from_kernels_of_several_dtypes_or_without_numbers() -> None:
    program = Old().then("aten::mm", [[8, 16], [16, 4]]).then("aten::mm", [[8, 16], [16, 4]])
    without_types(program, "volta_scudnn_128x64_x", "volta_h884cudnn_256x64_x")
    assert math.isnan(program.rows()["aten::mm"].bytes_total_moved)
    ranged = without_types(Old().then("aten::arange", [[], [], [], [0]]), "k")
    assert math.isnan(rows_of(ranged)["aten::arange"].bytes_total_moved)


@pytest.mark.parametrize("op, dtype, item", [("_softmax", "c10::Half", 4), ("_softmax", FLOAT, 4), ("cumsum", LONG, 8)])
def test_a_missing_dtype_is_the_widest(op: str, dtype: str, item: int) -> None:
    program = Old().then(f"aten::{op}", [[6, 10], [], []], dtype=[dtype, "Scalar", "Scalar"])
    assert program.rows()[f"aten::{op}"].bytes_written == 60 * item
    assert ("estimated" in program.load().coverage()) == (dtype != FLOAT)


# Values ---------------------------------------------------------------------------------------------------------------

GIVEN = 4 * (60 + 4 * 3)  # x and four statistics


@pytest.mark.parametrize(
    ("name", "shapes", "wanted"),
    [
        ("mean", [[6, 10], [], [], []], (60, 240, 240)),  # axes: at most all elements remain
        ("cudnn_batch_norm", [[2, 3, 10], [3], [3], [3], [3], [], [], []], (math.nan, GIVEN, GIVEN)),  # the mode
        ("native_group_norm", [[2, 6, 5], [6], [6], *NOTHING[:5]], (7 * 60, 4 * 72, 4 * 60 + 2 * 4 * 2 * 6)),  # groups
        ("topk", [[6, 10], [], [], [], []], (0, 240, 12 * 60)),  # the count
    ],
)
def test_missing_values_count_as_their_upper_bound(name: str, shapes: list[Shape], wanted: Numbers) -> None:
    program = Old().then(f"aten::{name}", shapes)
    assert numbers(program.rows()[f"aten::{name}"]) == pytest.approx(wanted, nan_ok=True)
    assert program.load().coverage()["estimated"] == [(f"aten::{name}", 5.0)]


@pytest.mark.parametrize(
    ("image", "weight", "out", "transposed"),
    [
        ([2, 4, 12, 12], [6, 4, 3, 3], [2, 6, 5, 5], False),
        ([2, 4, 12, 12], [4, 4, 3, 3], [2, 4, 5, 5], False),  # equal numbers of input and output channels
        ([2, 4, 12, 12], [4, 1, 3, 3], [2, 4, 12, 12], False),  # four groups
        ([2, 4, 6, 6], [4, 6, 3, 3], [2, 6, 13, 13], True),
        ([2, 4, 6, 6], [4, 4, 3, 3], [2, 4, 13, 13], True),
    ],
)
def test_missing_masks_count_all_gradients_at_most(image: Shape, weight: Shape, out: Shape, transposed: bool) -> None:
    """torch 1.11 to 2.0 has one op for all gradients and records only its tensors."""
    name = "aten::convolution_backward"
    program = Old().then(name, [out, image, weight, *NOTHING, []])
    i, o, w = (4 * math.prod(shape) for shape in (image, out, weight))
    flops = 2 * 2 * math.prod(image if transposed else out) * math.prod(weight[1:])
    assert numbers(program.rows()[name]) == (flops, o + w + i, i + w + 4 * out[1])
    assert program.load().coverage()["estimated"]


def test_products_with_sparse_matrices_are_not_those_of_dense_ones() -> None:
    """Only strided tensors have strides."""
    for strides, flops in (([40, 1], 2 * 40 * 40 * 8), ([], math.nan)):
        program = Program()
        program.run("aten::addmm", 0, 10, 5, [40, 8], [40, 40], [40, 8], [], [], dtype=[FLOAT] * 3 + ["Scalar"] * 2,
                    strides=[[8, 1], strides, [8, 1], [], []], values=["", "", "", "0", "1"])  # fmt: skip
        assert rows_of(program)["aten::addmm"].flops == pytest.approx(flops, nan_ok=True)
