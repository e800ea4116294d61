"""For each rule of the advice a program that has the fault, and one that has not; put together by hand."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from helpers.hand_traces import BF16, DOUBLE, FLOAT, INT8, NCCL, PAGEABLE, PINNED, Program, in_a_row
from helpers.jax_cases import JaxProgram, called_back, carried, precise, undonated

SIZE = 1 << 26
FILL = ("aten::mm", 2000.0, ([8192, 8192], [8192, 8192]), {"dtype": BF16, "kernel": "nvjet_sm90_tst"})
"""Work that leaves little to gain."""
COLLECTIVE = {"Collective name": "allreduce", "dtype": "Float", "Process Group Name": "0", "Group size": 2}
SCORES = [64, 2048, 2048]


def late(
    *,
    data: bool = False,
    wait: bool = False,
    malloc: bool = False,
    loads: Sequence[int] = (),
    collects: Sequence[int] = (),
) -> Program:
    """Return a program whose device idles for 900 of 2000 µs because of what its host does. loads, collects: of 4
    steps."""
    program = Program()
    for number in range(4 if loads or collects else 2):
        at = 2000 * number
        program.step(number, at, 1990)
        program.run("made::first", at + 2, at + 10, 490)
        if data:
            program.add("user_annotation", "enumerate(DataLoader)#it.__next__", at + 20, 1360)
        if wait:
            program.op("aten::item", at + 20, 500)
            program.call("cudaStreamSynchronize", at + 30, 480)
        if malloc:
            program.call("cudaMalloc", at + 600, 700)
        if number in loads:
            program.call("cuModuleLoadDataEx", at + 600, 700)
        if number in collects:
            program.add("user_annotation", "Python garbage collection", at + 600, 700)
        program.run("made::second", at + 1390, at + 1400, 590)
    return program


def piecewise(count: int = 8, *, calls: bool = True, graph: bool = False) -> Program:
    """Return a program that launches kernels of 10 µs every 50 µs. ``graph``: one launch replays all of a step."""
    program = Program()
    for number in range(3):
        at = 50 * (count + 1) * number
        program.step(number, at, 50 * (count + 1))
        program.run("made::first", at + 2, at + 10, 30)
        for place in range(count - 1):
            begin = at + 60 + 50 * place
            if graph and place:
                program.work("kernel", begin, 10, correlation=program.correlation)
            else:
                program.run("made::op", begin - 5, begin, 10)
    if not calls:
        program.events = [event for event in program.events if event["cat"] != "cuda_runtime"]
    return program


def compiling(*later: int, length: float = 800) -> Program:
    """Return a program of four steps that compiles in the first and in ``later`` ones."""
    program = Program()
    for number in range(4):
        at = 4000 * number
        program.step(number, at, 3990)
        program.run("made::first", at + 2, at + 10, 490)
        if number in (0, *later):
            program.op("_compile.compile_inner (dynamo_timed)", at + 510, length)
            program.run("made::second", at + 515 + length, at + 520 + length, 3400 - length)
        else:
            program.run("made::second", at + 6, at + 500, 3400)
    return program


def generating(
    lengths: Sequence[int] = range(100, 110), *, cost: float = 3000, name: str = "aten::_cudnn_attention_forward",
    shaped: bool = True
) -> Program:  # fmt: skip
    """Return a program that attends to a length a step; the first call for one takes ``cost`` µs."""
    program, at = Program(), 0.0
    for number, length in enumerate(lengths):
        first = cost if length not in lengths[:number] else 20
        program.step(number, at, first + 54)
        for host in (first, 20):  # two layers
            shapes = [[4, 16, 1, 64], *[[4, 16, length, 64]] * 2] * shaped
            program.run(name, at + host - 1, at + host + 8, 30, *shapes, dtype=BF16)
            program.events[-3] |= {"ts": at, "dur": host + 4}
            at += host + 7
    return program


def messages(
    *calls: tuple[int, float], recorded: bool = True, computed: float = 2000, overlapped: bool = False
) -> Program:
    """Return a program that reduces (elements, µs), one after another, beside or after its computation."""
    program = Program(step=50)
    program.run("made::forward", 1, 5, computed)
    begin = 5.0 if overlapped else 5.0 + computed
    for place, (elements, duration) in enumerate(calls):
        sizes = {**COLLECTIVE, "In msg nelems": elements, "Out msg nelems": elements} if recorded else {}
        program.op("nccl:all_reduce", 4 + 3 * place, 2)
        program.call("cudaLaunchKernelExC", 5 + 3 * place, 1, correlation=place)
        program.work(NCCL, begin, duration, stream=9, correlation=place, **sizes)
        begin += duration
    return program


def collectives(*durations: float, **options: Any) -> Program:
    """Return a program that reduces the same small number of elements again and again."""
    return messages(*((1 << 14, duration) for duration in durations), **options)


def product(name: str, kernel: str, dtype: str, duration: float, *sizes: int) -> Program:
    m, n, k = sizes or (8192, 8192, 8192)
    return in_a_row((name, duration, ([m, k], [k, n]), {"dtype": dtype, "kernel": kernel}))


def transposed(shape: Sequence[int]) -> list[list[int]]:
    """Return the strides of two tensors of a shape, of which the second has its dimensions in reverse order."""
    rows = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    return [rows, [math.prod(shape[:place]) for place in range(len(shape))]]


def contiguous(copies: bool, shape: Sequence[int] = (8192, 8192)) -> Program:
    """Return a program that reorders a tensor, or that adds to it."""
    program = Program(step=20)
    program.op("aten::contiguous" if copies else "made::op", 1, 10, list(shape))
    name, kernel = ("aten::copy_", "direct_copy_kernel") if copies else ("aten::add", "elementwise_kernel")
    program.run(name, 2, 12, 200, list(shape), list(shape), kernel=kernel, strides=transposed(shape))
    return program


def attention(fused: bool) -> Program:
    batch, rows = [64, 2048, 128], [64, 128, 2048]
    if fused:
        shape = [4, 16, 2048, 128]
        inputs = ("aten::_scaled_dot_product_flash_attention", 300.0, (shape, shape, shape), {"dtype": BF16})
        return in_a_row(inputs)
    return in_a_row(
        ("aten::bmm", 300.0, (batch, rows), {"dtype": BF16, "kernel": "nvjet_tst"}),
        ("aten::div", 700.0, (SCORES, []), {"dtype": [BF16, DOUBLE]}),
        ("aten::_softmax", 800.0, (SCORES,), {"dtype": BF16, "kernel": "softmax_warp_forward"}),
        ("aten::bmm", 310.0, (SCORES, batch), {"dtype": BF16, "kernel": "nvjet_tst2"}),
    )


def adam(fused: bool) -> Program:
    program = Program(step=40)
    program.add("user_annotation", "Optimizer.step#AdamW.step", 1, 30)
    names = ["aten::_fused_adamw_"] if fused else ["aten::mul_", "aten::lerp_", "aten::addcmul_", "aten::addcdiv_"]
    for place, name in enumerate(names):
        program.run(name, 2 + 3 * place, 12 + 500 * place, 500, [SIZE], [SIZE])
    return program


def uploads(kernel: str, stream: int, begin: float = 1010) -> Program:
    """Return a program that copies from 10 to 1010 µs, and that computes for 3000 µs from ``begin``, unless it is 0."""
    program = Program(step=20)
    program.run("aten::copy_", 1, 10, 1000, [SIZE], [SIZE], kernel=kernel, stream=stream)
    if begin:
        program.run("made::work", 4, begin, 3000)
    return program


def chain(*sizes: int) -> Program:
    return in_a_row(*(("aten::mul", 220.0 * size / SIZE, ([size], [size])) for size in sizes))


def counted(program: Program, gbytes_per_s: float) -> Program:
    """Add counters that read the same every 10 µs, from the start of the program to its end."""
    end = max(event["ts"] + event["dur"] for event in program.events)
    for place in range(int(end / 10) + 3):
        for name, value in (("dram_bytes_read", gbytes_per_s), ("dram_bytes_written", 0.0)):
            program.events.append({"ph": "C", "name": name, "pid": 0, "ts": 10 * place, "args": {"GB/s": value}})
    return program


def elementwise(
    devices: int = 1, *, name: str = "aten::mul", calls: int = 1200, vector: Sequence[int] = (1200,),
    shape: Sequence[int] = (1,), every: int = 1, select: str = "aten::select",
) -> Program:  # fmt: skip
    """Return a program that takes the elements of a vector one by one, and works on every so manyth."""
    program = Program(devices)
    for i in range(calls):
        program.op(select, 20 * i, 4, [*vector])
        if i % every == 0 and devices:
            program.run(name, 20 * i + 5, 20 * i + 8, 10, [*shape])
        elif i % every == 0:
            program.op(name, 20 * i + 5, 10, [*shape])
    program.op("aten::add", 20 * calls, 10, [64])
    return program


GROWING = [(8 + i, 9 + i) for i in range(40)]


def joined(
    lengths: Sequence[tuple[int, int]] = GROWING, devices: int = 1, *, taken: bool = True, name: str = "aten::cat",
    dim: str = "-2", cost: float = 3, around: str = "made::work",
) -> Program:  # fmt: skip
    """Return a program that joins tensors to these lengths, at a cost in µs for each; ahead of a device, if any."""
    program, at = Program(devices), 10.0 * len(lengths)
    for number, (before, after) in enumerate(lengths):
        shapes: Any = ([[8, before, 512], [8, after - before, 512]], [])
        given: Any = {"dtype": ["TensorList", "Scalar"], "values": ["", dim]}
        time, begin = 10 + cost * after, 10 * number if devices else at
        program.op(around, begin, 2)
        call = (program.run, begin + 3, at, time) if devices else (program.op, begin + 3, time)
        call[0](name, *call[1:], *shapes, **given)
        end = begin + (6 if devices else time + 3)
        program.op("aten::transpose" if taken else "aten::slice", end, 1, [8, after, 512], [], [])
        at += time + (0 if devices else 6)
    return program


def promoted(dtypes: Sequence[str] = (FLOAT, "double"), operand: Sequence[int] = (8192,)) -> Program:
    """Return a program that adds tensors of these dtypes, and multiplies tensors of float64 and of float32."""
    program = Program()
    program.run("aten::add", 0, 10, 300, [8192, 8192], [*operand], dtype=dtypes)
    program.run("aten::mul", 20, 310, 400, [8192, 6000], [8192, 6000], dtype="double")
    program.run("aten::mul", 40, 710, 200, [4096, 8192], [4096, 8192])
    return program


CASES: dict[str, tuple[Callable[[], Program | JaxProgram], Callable[[], Program | JaxProgram]]] = {
    "warmup": (compiling, lambda: in_a_row(FILL)),
    "loading": (lambda: late(loads=range(4)), lambda: late(loads=[0, 2])),
    "collection": (lambda: late(collects=[1, 2, 3]), lambda: late(collects=[1])),
    "callback": (lambda: called_back(True), lambda: called_back(False)),
    "data": (lambda: late(data=True), late),
    "copy": (lambda: uploads(PAGEABLE, 7), lambda: uploads(PINNED, 8, 10)),
    "memory": (lambda: late(malloc=True), late),
    "sync": (lambda: late(wait=True), late),
    "optimizer": (lambda: adam(False), lambda: adam(True)),
    "straggler": (lambda: collectives(100, 100, 900), lambda: collectives(100, 110, 120)),
    "communication": (lambda: collectives(100, 110, 120), lambda: collectives(100, 110, 120, overlapped=True)),
    "donate": (lambda: undonated(True), lambda: undonated(False)),
    "carry": (lambda: carried(True), lambda: carried(False)),
    "precision": (lambda: precise(True), lambda: precise(False)),
    "attention": (lambda: attention(False), lambda: attention(True)),
    "tf32": (
        lambda: product("aten::mm", "volta_sgemm_128x64_nn", FLOAT, 20_000),
        lambda: product("aten::mm", "sm80_xmma_gemm_f32f32_tf32f32_f32_nn", FLOAT, 3_000),
    ),
    "low_precision": (
        lambda: product("aten::mm", "sm80_xmma_gemm_f32f32_tf32f32_f32_nn", FLOAT, 3_000),
        lambda: product("aten::mm", "nvjet_tst", BF16, 1_500),
    ),
    "align": (
        lambda: product("aten::mm", "nvjet_tst", BF16, 5_000, 4096, 50257, 4096),
        lambda: product("aten::mm", "nvjet_tst", BF16, 2_200, 4096, 50304, 4096),
    ),
    "elements": (elementwise, lambda: elementwise(every=4)),
    "growth": (joined, lambda: joined([(8, 9), (9, 8)] * 20)),
    "float64": (promoted, lambda: promoted(["double"] * 2)),
    "cast": (
        lambda: in_a_row(FILL, ("aten::copy_", 200.0, ([SIZE], [SIZE]), {"dtype": [BF16, FLOAT]})),
        lambda: in_a_row(FILL),
    ),
    "layout": (lambda: contiguous(True), lambda: contiguous(False)),
    "traffic": (
        lambda: counted(in_a_row(("aten::sum", 140.0, ([SIZE],))), 4000),
        lambda: counted(in_a_row(("aten::sum", 140.0, ([SIZE],))), 2000),
    ),
    "small": (
        lambda: in_a_row(("made::scan", 500.0, ([8, SIZE],), {"blocks": 8})),
        lambda: in_a_row(("made::scan", 500.0, ([8, SIZE],))),
    ),
    "far_from_roof": (
        lambda: product("aten::_int_mm", "cutlass_80_wmma_tensorop_i161616gemm_s8_nn_align4", INT8, 8_000),
        lambda: product("aten::_int_mm", "sm90_xmma_gemm_i8i32_i8i32_i32_tn_n", INT8, 1_300),
    ),
    "fuse": (lambda: chain(SIZE, SIZE, SIZE), lambda: chain(SIZE, SIZE // 2)),
    "plan": (generating, lambda: generating([100] * 10)),
    "launch": (piecewise, lambda: piecewise(graph=True)),
}
"""By rule: a program that has the fault, and one that has not."""
