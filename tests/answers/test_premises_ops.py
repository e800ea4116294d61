"""Premises of the rules about ops: programs in which a rule holds, and the same with one fact changed."""

from typing import Any

import pytest
from helpers.advice_cases import inside, told
from helpers.faulty_programs import GROWING, SIZE, elementwise, joined, product, promoted, transposed
from helpers.hand_traces import BF16, FLOAT, INT8, NCCL, Program, in_a_row


def test_arguments_are_those_of_the_call_or_of_one_around_it() -> None:
    program = Program()
    program.op("aten::outer", 0, 20, [4, 2], dtype=BF16, strides=[[2, 1]], values=[""])
    program.op("aten::inner", 1, 5, [4], [], dtype=[FLOAT, "Scalar"], values=["", "0.5"])
    core: Any = program.load()._core
    columns, names, *_ = core.events()
    inner = [names[name] for name in columns["name"]].index("aten::inner")
    assert core.arguments(inner)[0] == ("float32", (4,), None, "")
    assert core.arguments(inner)[1][1:] == (None, None, "0.5")
    assert core.arguments(inner, "aten::outer") == [("bfloat16", (4, 2), (2, 1), "")]
    assert core.arguments(inner, "aten::other") is None
    lists: Any = joined([(4, 7)], 0).load()._core
    assert lists.arguments(1) == [(None, None, None, "[(8, 4, 512), (8, 3, 512)]"), (None, None, None, "-2")]
    with pytest.raises(IndexError, match="there is no event 99"):
        core.arguments(99)


# elements, float64 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "Replace a loop over elements"), ({"name": "aten::item"}, "one tolist()"),
        ({"calls": 900, "vector": [900]}, ""),  # few
        ({"vector": [5000]}, ""),  # some of its elements, as the labels of a batch
        ({"vector": [1200, 64]}, ""),  # rows
        ({"shape": [64]}, ""),  # what is called has many elements
        ({"every": 4}, ""), ({"select": "aten::narrow"}, ""),  # another loop
    ],
)  # fmt: skip
@pytest.mark.parametrize("devices", [0, 1])
def test_a_loop_over_elements_takes_all_of_a_vector(changed: dict[str, Any], said: str, devices: int) -> None:
    rows = told(elementwise(devices, **changed), "elements")
    assert [said in row.action for row in rows] == [True] * bool(said)
    if said:
        assert rows[0].saving_us <= 1200 * (10 if devices else 14)


@pytest.mark.parametrize(
    ("dtypes", "operand", "said"),
    [
        ([FLOAT, "double"], [8192], True),
        (["double"] * 2, [8192], False),  # float64 is meant
        ([FLOAT, "double"], [], False),  # a number has no say in the dtype of a result
        ([FLOAT, "long int"], [8192], False),
        ([FLOAT, FLOAT], [8192], False),
    ],
)
def test_float64_enters_by_an_op_of_both_dtypes(dtypes: list[str], operand: list[int], said: bool) -> None:
    found = [(row.saving_us, "aten::add" in row.what) for row in told(promoted(dtypes, operand), "float64")]
    assert found == [(pytest.approx(200), True)] * said  # half of the mul of float64


BACKWARD = {"around": "autograd::engine::evaluate_function: CatBackward0"}


@pytest.mark.parametrize(
    ("said", "lengths", "changed"),
    [
        ("Write into", GROWING, {}), ("Concatenate once", GROWING, {"taken": False}),
        ("Concatenate once", GROWING, {"taken": False, **BACKWARD}), ("", GROWING, BACKWARD),  # as it was
        ("Write into", [*GROWING, *GROWING[4:]], {}),  # twice
        ("Write into", [one for one in GROWING for _ in range(6)], {}),  # by layers
        ("Write into", [(i, i + 1) for i in range(1, 18)], {}),  # 16 rounds after the first
        ("", [(i, i + 1) for i in range(1, 17)], {}), ("", [(8, 9), (9, 12)] * 20, {}),
        ("", [(1 << i, 2 << i) for i in range(20)], {}),  # a tree of pairs, which copies each element as often
        ("", [(i, 50) for i in range(8, 48)], {}),  # padded to one length
        ("", [GROWING[7 * i % 40] for i in range(40)], {}),  # sequences that get one more element each
        ("", GROWING, {"cost": 0}),  # the calls alone take the time, as they would with slices
        *(("", GROWING, {"dim": dim}) for dim in ("", "1x", "-4")), ("", GROWING, {"name": "aten::stack"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("devices", [0, 1])
def test_a_tensor_grows_if_each_call_copies_what_one_before_made(
    said: str, lengths: list[tuple[int, int]], changed: dict[str, Any], devices: int
) -> None:
    rows = told(joined(lengths, devices, **changed), "growth")
    assert [said in row.action for row in rows] == [True] * bool(said)
    if lengths == GROWING and said:
        spent = sum(10 + 3 * after for _, after in GROWING[1:])
        again = sum(before for before, _ in GROWING[1:]) / sum(after for _, after in GROWING[1:])
        facts = {"calls": 39, "per": "in the profile", "time": spent, "taken": "Write" in said, "shape": [8, 48, 512]}
        assert rows[0].facts == facts | {"again": pytest.approx(again / (1 - again))}
        least = 39 * (10 + 3 * GROWING[1][1]) if "Write" in said else (1 - again) * spent  # the shortest calls, or one
        assert rows[0].saving_us == pytest.approx(spent - least)


# layout ---------------------------------------------------------------------------------------------------------------

ROWS, COLUMNS = transposed([8192, 8192])
REORDERS = "1 copy a step only reorders elements (the longest in aten::contiguous"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, True), ({"strides": None}, False), ({"strides": [ROWS, ROWS]}, False),  # as it was
        ({"strides": [ROWS, [0, 1]]}, False),  # a broadcast
        ({"strides": [ROWS, [8192, 2]]}, False),  # a slice, in the same order
        ({"shapes": ([8192, 1], [8192, 1])}, False), ({"shapes": ([], [])}, False), ({"name": "aten::add"}, False),
        ({"dtype": [BF16, FLOAT]}, False),  # a cast
        ({"around": "aten::index_put"}, False),  # into a buffer of the program
    ],
)  # fmt: skip
def test_layout_needs_another_order_of_elements(changed: dict[str, Any], said: bool) -> None:
    given = {"around": "aten::contiguous", "strides": [ROWS, COLUMNS]} | changed
    rows = told(inside(given.pop("around"), **given), "layout")
    assert [REORDERS in row.what for row in rows] == [True] * said


def test_all_copies_of_a_row_are_judged() -> None:
    """A row whose first call casts, in an op that makes nothing contiguous, and whose second call reorders."""
    program = Program(step=40)
    program.run("aten::copy_", 1, 42, 20, [8192, 8192], [8192, 8192], dtype=[BF16, FLOAT])
    program.op("aten::contiguous", 10, 10, [8192, 8192])
    program.run("aten::copy_", 11, 70, 300, [8192, 8192], [8192, 8192], strides=[ROWS, COLUMNS])
    (row,) = told(program, "layout")
    assert REORDERS in row.what and "permute the weights" not in row.what


def convolution(kernels: tuple[str, ...], weight: list[int], **run: Any) -> Program:
    """Return a program of one convolution over [32, 64, 56, 56]."""
    program = Program(step=20)
    program.op("aten::cudnn_convolution", 1, 10, [32, 64, 56, 56], weight, **run)
    for place, kernel in enumerate(kernels):
        program.call("cudaLaunchKernel", 2 + 2 * place, 1, correlation=place + 1)
        program.work(kernel, 20 + 3000 * place, 3000, correlation=place + 1)
    return program


@pytest.mark.parametrize(
    ("kernel", "strides", "said"),
    [
        ("cudnn::nchwToNhwcKernel<float>", None, True),
        ("cudnn::nchwToNhwcKernel<float>", [[200704, 3136, 56, 1], [576, 9, 3, 1]], True),
        ("cudnn::nchwToNhwcKernel<float>", [[200704, 1, 3584, 64], [576, 1, 192, 64]], False),  # in NHWC already
        ("cudnn::someKernel<float>", None, False), ("batched_transpose_64x32_half", None, True),
        ("SubTensorOpWithTransform5d", None, True), ("void cutlass::nchw_to_nhwc_kernel<float>", None, True),
    ],
)  # fmt: skip
def test_channels_last_is_for_convolutions_that_convert(kernel: str, strides: Any, said: bool) -> None:
    program = convolution((kernel, "sm80_xmma_fprop_tf32f32_nhwc"), [64, 64, 3, 3], strides=strides)
    assert any("Use channels_last" in row.what for row in told(program, "layout")) == said
    if said:
        assert [row.category for row in program.load().key_averages() if row.key == kernel] == ["copies"]
    if strides is None:  # the same without shapes
        for event in program.events:
            event["args"].pop("Input Dims", None)
        (row,) = told(program, "layout") or (None,)
        assert said == (row is not None and "1 conversion a step between NCHW and NHWC" in row.what)


CONV, NORM, RELU, ADD = "aten::cudnn_convolution", "aten::cudnn_batch_norm", "aten::clamp_min_", "aten::add_"


@pytest.mark.parametrize(
    ("ops", "share"),
    [
        ((CONV, NORM, RELU, CONV, NORM, ADD, RELU), "71.4% "),
        ((CONV, ADD, NORM, RELU), "50.0% "),  # a bias
        ((CONV, RELU, ADD, ADD), None),  # no normalisation
        ((NORM, CONV, ADD, ADD, ADD), None),  # of an optimizer
    ],
)
def test_what_follows_a_normalisation_in_a_kernel_of_its_own_is_noted(ops: tuple[str, ...], share: str | None) -> None:
    notes = in_a_row(*((name, 100, []) for name in ops)).load().advice().notes
    assert [note[:6] for note in notes if "as kernels of their own" in note] == [share] * (share is not None)


@pytest.mark.parametrize(
    ("order", "more", "said"),
    [
        ("conv2d batch_norm", {}, True),  # by the kernel
        ("conv2d batch_norm", {"kernel": "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>"}, False),
        ("conv2d batch_norm", {"trains": "True"}, False),
        ("conv2d batch_norm", {"trains": "False", "kernel": "unknown"}, True),
        ("conv2d batch_norm", {"channels": 32}, False),  # of another tensor
        ("conv2d batch_norm", {"trains": "False", "on": ("cpu_op",)}, True),
        ("conv2d batch_norm", {"on": ("cpu_op",)}, False),  # a CPU's kernels have no names
        ("conv2d add batch_norm", {}, False),
        ("conv2d batch_norm native_batch_norm_backward", {}, False),
        ("conv2d batch_norm", {"took": 0, "on": ("cpu_op", "cuda_runtime", "kernel")}, False),  # no work has a duration
    ],
)
def test_a_normalisation_is_folded_where_nothing_is_trained(order: str, more: dict[str, Any], said: bool) -> None:
    given = {
        "kernel": more.get("kernel", "cudnn::bn_fw_inf_1C11_kernel_NCHW<float>"),
        "dtype": [FLOAT] * 5 + ["Scalar"],
    }
    norm = [[8, more.get("channels", 64), 56, 56], [64], [64], [64], [64], []]
    shapes = {"conv2d": [[8, 3, 56, 56], [64, 3, 3, 3]], "batch_norm": norm}
    values = {"batch_norm": {**given, "values": [""] * 5 + [more.get("trains", "")]}}
    ops = ((f"aten::{name}", 100, shapes.get(name, []), values.get(name, {})) for name in order.split())
    program = in_a_row(*ops)
    program.events = [event for event in program.events if event["cat"] in more.get("on", event["cat"])]
    for event in program.events:
        event["dur"] = more.get("took", event["dur"]) if event["cat"] == "kernel" else event["dur"]
    notes = [note for note in program.load().advice().notes if "fuse_conv_bn_eval" in note]
    assert ["2 of 2 batch normalisations (" in note for note in notes] == [True] * said


@pytest.mark.parametrize("changed", ["", "the module's own", "inference", "other ranges"])
def test_buffers_are_broadcast_before_what_a_module_computes_in_training(changed: str) -> None:
    ops = ["c10d::broadcast_", "aten::linear", "autograd::engine: Backward"]
    if changed == "the module's own":
        ops[:2] = ops[1::-1]
    program = in_a_row(*((name, 100, []) for name in ops[: 2 if changed == "inference" else 3]))
    for step in [event for event in program.events if event["name"].startswith("ProfilerStep")]:
        name = "forward" if changed == "other ranges" else "DistributedDataParallel.forward"
        program.add("user_annotation", name, step["ts"] + 0.5, step["dur"] - 1)
    notes = [note for note in program.load().advice().notes if "broadcast_buffers=False" in note]
    assert ["before 2 of 2 forward passes" in note for note in notes] == [True] * (not changed)


# tf32, low_precision --------------------------------------------------------------------------------------------------

CUDNN, MATMUL = "cudnn.allow_tf32 = True", "set_float32_matmul_precision"
PLACES = ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False"]


@pytest.mark.parametrize(
    ("weight", "kernel", "allowed", "said"),
    [
        ([64, 64, 3, 3], "implicit_convolve_sgemm", "False", True),
        ([64, 1, 3, 3], "implicit_convolve_sgemm", "False", False),  # depthwise
        ([64, 8, 3, 3], "implicit_convolve_sgemm", "False", False),  # 8 groups
        ([64, 64, 3, 3], "cutlass_80_tensorop_s1688gemm_tf32", "False", False),
        ([64, 64, 3, 3], "implicit_convolve_sgemm", "True", False),  # cuDNN chose it
    ],
)
def test_tf32_is_for_convolutions_not_allowed_it(weight: list[int], kernel: str, allowed: str, said: bool) -> None:
    rest: list[list[int]] = [[]] * 7
    program = convolution((kernel,), weight, values=[*PLACES, allowed], dtype=[FLOAT, FLOAT, *["ScalarList"] * 7])
    program.events[1]["args"]["Input Dims"] += rest
    asked = [(CUDNN in row.what, MATMUL in row.what) for row in told(program, "tf32")]
    assert asked == [(True, False)] * said


@pytest.mark.parametrize(("rows", "said"), [(8192, True), (16, False)])
def test_tf32_does_not_help_products_that_wait_for_their_bytes(rows: int, said: bool) -> None:
    found = told(product("aten::mm", "volta_sgemm_128x64_nn", FLOAT, 20_000, rows, 8192, 8192), "tf32")
    assert [("cudnn" in row.what, MATMUL in row.what) for row in found] == [(False, True)] * said


@pytest.mark.parametrize(("channels", "said"), [(64, True), (1, False)])
def test_low_precision_is_not_for_depthwise_convolutions(channels: int, said: bool) -> None:
    program = convolution(("sm80_xmma_gemm_f32f32_tf32f32_f32_nn",), [64, channels, 3, 3])
    assert bool(told(program, "low_precision")) == said


FUSED_ATTENTION = "aten::_scaled_dot_product_efficient_attention"


def test_attention_over_float32_is_none_in_tf32() -> None:
    heads = [8, 16, 2048, 64]
    kernel = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)"
    program = in_a_row((FUSED_ATTENTION, 9000.0, (heads, heads, heads), {"kernel": kernel}))
    (row,) = told(program, "low_precision")
    assert "1 call of attention a step (9.00ms) runs in float32." in row.what and "TF32" not in row.what
    assert "product" not in row.what


@pytest.mark.parametrize(
    ("device", "major", "minor", "processors", "dtype"),
    [
        ("Tesla V100-SXM2-32GB", 7, 0, 80, "float16"), ("Tesla T4", 7, 5, 40, "float16"),
        ("Tesla P100-PCIE-16GB", 6, 0, 56, ""), ("NVIDIA H200", 9, 0, 132, "bfloat16"),
    ],
)  # fmt: skip
def test_low_precision_names_a_devices_dtype(device: str, major: int, minor: int, processors: int, dtype: str) -> None:
    kernel = "sm80_xmma_gemm_f32f32_tf32f32_f32_nn" if major == 9 else "volta_sgemm_128x64_nn"
    program = in_a_row(("aten::mm", 90_000.0, ([8192, 8192], [8192, 8192]), {"kernel": kernel}))
    facts = {"name": device, "computeMajor": major, "computeMinor": minor, "numSms": processors}
    program.head["deviceProperties"][0] |= facts
    rows = told(program, "low_precision")
    assert bool(rows) == bool(dtype) and all(f"dtype=torch.{dtype})" in row.what for row in rows)


def test_the_fill_of_a_workspace_is_no_product() -> None:
    program = Program(step=20)
    program.run("aten::mm", 1, 20, 50, [8192, 8192], [8192, 8192], kernel="Memset (Device)")
    program.call("cudaLaunchKernel", 1.2, 0.5, correlation=1)
    program.work("sm80_xmma_gemm_f32f32_tf32f32_f32_nn", 70, 8050, correlation=1)
    (row,) = told(program, "low_precision")
    assert "1 product a step" in row.what


# align ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "strides", "named"),
    [
        ((50257, 4096, 4096), None, ""),  # the rows of the first matrix are unknown
        ((50257, 4096, 4096), [[4096, 1], [4096, 1]], ""), ((50257, 4096, 4096), [[1, 50257], [4096, 1]], "M = 50257"),
        ((4096, 4096, 50257), [[50257, 1], [4096, 1]], "K = 50257"), ((4096, 4096, 50257), [[1, 4096], [4096, 1]], ""),
        ((4096, 50257, 4096), None, "N = 50257"),
    ],
)  # fmt: skip
def test_align_looks_at_the_sizes_that_are_rows_in_memory(sizes: Any, strides: Any, named: str) -> None:
    m, n, k = sizes
    program = in_a_row(("aten::mm", 8000.0, ([m, k], [k, n]), {"dtype": BF16, "kernel": "nvjet", "strides": strides}))
    rows = told(program, "align")
    assert bool(rows) == bool(named) and all(f"Pad {named} of aten::mm" in row.what for row in rows)


# small ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "arguments", "said"),
    [
        ([8, SIZE], {"blocks": 8}, True),
        ([8, SIZE], {"blocks": 100}, False),
        ([8, 1024], {"blocks": 8}, False),  # too few elements for 132 multiprocessors
        (None, {"blocks": 8}, False),  # unknown
        ([8, SIZE], {"blocks": 8, "kernel": NCCL}, False),
    ],
)
def test_small_is_for_kernels_that_could_fill_the_device(shape: Any, arguments: dict[str, Any], said: bool) -> None:
    rows = told(in_a_row(("made::scan", 500.0, (shape,) if shape else (), arguments)), "small")
    assert bool(rows) == said and all("in 8 blocks on 132 multiprocessors" in row.what for row in rows)


@pytest.mark.parametrize(
    ("op", "shapes", "said"),
    [
        ("aten::mm", ([2048, 2048], [2048, 2048]), True),
        ("aten::sin", ([8, SIZE],), False),  # its bytes bound it, and half of the blocks may use all of the bandwidth
        ("made::scan", ([8, SIZE],), False),  # unknown
    ],
)
def test_the_last_wave_is_told_of_what_computes(op: str, shapes: Any, said: bool) -> None:
    program = Program()
    program.head["deviceProperties"][0]["sharedMemPerBlockOptin"] = 232448
    grid = {"blocks": 132 * 8 + 40, "registers per thread": 32, "shared memory": 0, "dtype": BF16}
    rows = told(in_a_row((op, 500.0, shapes, grid), program=program), "small")
    assert bool(rows) == said and all("runs 40 blocks in a second wave after one of 1,056" in row.what for row in rows)


# far_from_roof --------------------------------------------------------------------------------------------------------

OLD, NEW = "cutlass_80_wmma_tensorop_i161616gemm_s8_nn_align4", "sm90_xmma_gemm_i8i32"


def int8(kernel: str = OLD, time: float = 8000.0, fill: float = 0.0) -> Program:
    more = {"dtype": INT8, "kernel": kernel}
    ops = [("aten::_int_mm", time, ([8192, 8192], [8192, 8192]), more)]
    return in_a_row(*ops, *[("made::op", fill, ([64],))] * (fill > 0))


def test_a_product_far_from_what_products_reach_is_named_with_its_kernel() -> None:
    (row,) = told(int8(), "far_from_roof")
    assert f"its kernel {OLD} (1,056 blocks) is written for sm80 and runs on sm90" in row.what
    assert [entry["op"] for entry in row.evidence] == ["aten::_int_mm", OLD]
    ideal = 2 * 8192**3 / 1978.9e12 * 1e6
    assert row.saving_us == pytest.approx(8000 - ideal / 0.7, rel=1e-3)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"time": 1300.0}, False),  # 43 % of the peak
        ({"fill": 160_000.0}, False),  # less than 5 % of the device's time
        ({"kernel": NEW}, True),
    ],
)
def test_far_means_half_of_what_is_usual_and_a_twentieth_of_the_time(changed: dict[str, Any], said: bool) -> None:
    rows = told(int8(**changed), "far_from_roof")
    assert bool(rows) == said and not any("is written for" in row.what for row in rows)


def test_a_product_is_held_against_the_others_of_the_profile() -> None:
    other = ("aten::mm", 1389.0, ([8192, 8192], [8192, 8192]), {"dtype": BF16, "kernel": "nvjet_sm90_tst"})
    slow = ("aten::_int_mm", 2000.0, ([8192, 8192], [8192, 8192]), {"dtype": INT8, "kernel": OLD})
    (row,) = told(in_a_row(other, slow), "far_from_roof")
    assert "where other products on tensor cores in this profile reach 80.0%" in row.what


def test_what_another_rule_explains_is_not_told_again() -> None:
    assert told(product("aten::mm", "volta_sgemm_128x64_nn", FLOAT, 60_000), "tf32")
    assert not told(product("aten::mm", "volta_sgemm_128x64_nn", FLOAT, 60_000), "far_from_roof")


@pytest.mark.parametrize(
    ("shape", "said"),
    [([220_000, 256], True), ([110_000, 2, 256], False), ([220_000, 4], False)],  # narrow rows are as fast by either
)
def test_index_add_of_wide_matrices_is_held_against_scatter_add(shape: list[int], said: bool) -> None:
    shapes = ([20_000, *shape[1:]], [], shape[:1], shape, [])
    more = {"dtype": [FLOAT, "Scalar", "long int", FLOAT, "Scalar"], "kernel": "indexFuncLargeIndex<float, long>"}
    rows = told(in_a_row(("aten::index_add_", 400.0, shapes, more)), "far_from_roof")
    assert bool(rows) == said
    assert all(row.saving_us == pytest.approx(200) and "Use scatter_add_ with" in row.what for row in rows)


@pytest.mark.parametrize(("blocks", "time", "said"), [(1, 6800.0, True), (2, 6800.0, False), (1, 15.0, False)])
def test_a_kernel_of_one_block(blocks: int, time: float, said: bool) -> None:
    kernel = "vision::ops::gather_keep_from_mask<true>"
    program = in_a_row(("torchvision::nms", time, ([4096, 4], [4096]), {"kernel": kernel, "blocks": blocks}))
    rows = told(program, "far_from_roof")
    assert bool(rows) == said
    if said:
        assert "gather_keep_from_mask<true> (1 block) keeps one of 132 multiprocessors busy" in rows[0].what
        assert kernel in [entry["op"] for entry in rows[0].evidence] and rows[0].saving_us == pytest.approx(3400)


def test_a_host_that_waits_for_the_kernel_does_not_silence_it() -> None:
    program = Program(step=6900)
    program.run("torchvision::nms", 1, 10, 6800, [4096, 4], kernel="gather_keep_from_mask<true>", blocks=1)
    program.op("aten::nonzero", 5, 6830)
    program.call("cudaStreamSynchronize", 10, 6810)
    (row,) = told(program, "far_from_roof")
    assert row.saving_us == pytest.approx(3400, rel=0.05)


# Work of other libraries ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flops", "op", "idle"), [(1e6, False, 300.0), (1e6, True, 900.0), (0, True, 900.0)])
def test_declared_work_of_a_cpu_program_is_no_idle_time(flops: float, op: bool, idle: float) -> None:
    """A range of 700 of 1000 µs, with declared FLOPs or without, around an op of 100 µs or around none."""
    program = Program(devices=0, step=1000)
    program.add("user_annotation", "numpy", 100, 700, **({"flops": flops} if flops else {}))
    if op:
        program.op("aten::mm", 200, 100, [64, 64], [64, 64])
    frame = program.load().accounting()
    assert list(frame["host"]) == [idle, idle] and list(frame["total"]) == [1000.0, 1000.0]
