"""fs.work() and fs.roofline_time(): the work of an op without a program; packages that bring their own rules."""

import math
from pathlib import Path
from typing import Any

import numpy
import pytest
from helpers.processes import ended

import flopscope as fs

MB = 1 << 20
SQUARE = (1024, 1024)
PAIR, SMALL = [SQUARE, SQUARE], [(100,), (20, 10)]


class Tensor:
    """Stands for a tensor of torch, or of any other library."""

    def __init__(self, *shape: int, dtype: str = "torch.float32") -> None:
        self.shape, self.dtype = shape, dtype


def moved(name: str, *args: Any) -> tuple[float, float, float]:
    found = fs.work(name, *args)
    return found.flops, found.bytes_read, found.bytes_written


def test_work_is_that_of_the_tables_rules() -> None:
    found = fs.work("aten::mm", [(512, 256), (256, 128)], "bfloat16")
    assert (found.flops, found.bytes_read) == (2 * 512 * 256 * 128, 2 * (512 + 128) * 256)
    assert found.bytes_written == 2 * 512 * 128 and found.why is None
    assert found.bytes == found.bytes_read + found.bytes_written and found.unit == "bf16_tensor"
    assert found.intensity == found.flops / found.bytes
    values = [None, None, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1]
    assert fs.work("aten::convolution", [(2, 8, 16, 16), (4, 8, 3, 3)], "float16", values).flops == 2 * 2 * 4 * 256 * 72
    assert fs.work("_C::rms_norm", [(4, 8), (4, 8), (8,), 1e-6]).flops == 4 * 4 * 8


def test_dtypes_and_tensors_are_taken_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    shapes = [(512, 256), (256, 128)]
    wanted = fs.work("aten::mm", shapes, "bfloat16")
    assert fs.work("aten::mm", shapes, torch.bfloat16) == fs.work("aten::mm", shapes, "torch.bfloat16") == wanted
    assert fs.work("aten::mm", [torch.empty(*s, dtype=torch.bfloat16) for s in shapes]) == wanted
    for dtype in (numpy.float32, numpy.dtype("float32"), torch.float32, [torch.float32] * 2):
        assert fs.work("aten::mm", shapes, dtype) == fs.work("aten::mm", shapes)


@pytest.mark.parametrize(
    "tensors",
    [
        PAIR, (SQUARE, SQUARE), [[1024, 1024], [1024, 1024]], [Tensor(*SQUARE), Tensor(*SQUARE)],
        (Tensor(*SQUARE), SQUARE), {"a": Tensor(*SQUARE), "b": Tensor(*SQUARE)}.values(),
        [fs.zeros(SQUARE, device="cpu")] * 2,
    ],
    ids=["shapes", "tuple", "lists", "tensors", "mixed", "values", "own"],
)  # fmt: skip
def test_lists_of_tensors_are_taken_as_they_come(tensors: Any) -> None:
    assert moved("aten::cat", [tensors, 0]) == (0, 8 * MB, 8 * MB)
    assert moved("aten::stack", [iter(tensors), 0]) == (0, 8 * MB, 8 * MB)


ADAM = [*[None] * 6, 1e-3, 0.9, 0.999, 0.0, 1e-8, False, False]


@pytest.mark.parametrize(
    ("name", "arguments", "wanted"),
    [
        ("cat", [[PAIR, 0], "bfloat16"], (0, 4 * MB, 4 * MB)),
        ("cat", [[PAIR, 0], ["float16", None]], (0, 4 * MB, 4 * MB)),
        ("cat", [[PAIR, 0], [["bfloat16", "float32"], None]], (0, 6 * MB, 8 * MB)),  # the result is float32
        ("cat", [[[Tensor(*SQUARE, dtype="torch.bfloat16"), SQUARE], 0]], (0, 6 * MB, 8 * MB)),
        *((name, [[[SQUARE] * 3]], (0, 12 * MB, 12 * MB)) for name in (
            "concat", "concatenate", "hstack", "vstack", "dstack", "column_stack", "row_stack")),
        ("block_diag", [[[(2, 3), (4,), ()]]], (0, 4 * 11, 4 * 4 * 8)),  # with the zeros around them
        ("_foreach_add_", [[SMALL, SMALL, 1.0]], (300, 2 * 1200, 1200)),
        ("_foreach_sqrt", [[SMALL], "float64"], (300, 2400, 2400)),
        ("_foreach_mul", [[SMALL, 2], "int64"], (0, 2400, 2400)),  # integers
        ("_foreach_copy_", [[SMALL, SMALL], ["bfloat16", "float32"]], (0, 1200, 600)),
        ("_foreach_norm", [[SMALL]], (600, 1200, 0)),
        ("_fused_adam_", [[SMALL] * 4 + [[], []], "float32", ADAM], (7 * 300, 4 * 1200, 3 * 1200)),
    ],
)  # fmt: skip
def test_ops_over_lists_count_each_of_them(name: str, arguments: list[Any], wanted: tuple[float, ...]) -> None:
    assert moved(f"aten::{name}", *arguments) == wanted


NORM, BAG = "aten::linalg_vector_norm", "aten::_embedding_bag"
HEADS = [(2, 16, 4, 8)] * 3
CAUSAL = 2 * 2 * 4 * (16 * 17 // 2) * (8 + 8)  # 136 of 256 pairs


@pytest.mark.parametrize(
    ("name", "shapes", "values", "flops"),
    [
        *((NORM, [(5, 5)], [None, 2, None, False, None][:given], 50) for given in (1, 2, 3, 4, 5)),
        ("aten::_efficient_attention_forward", HEADS, [*[None] * 6, 16, 16, 0.0, 1, False], CAUSAL),
        ("aten::_scaled_dot_product_efficient_attention", HEADS, [*[None] * 4, True], 4 * 2 * 16 * 4 * 4 * 8),
        (BAG, [(9, 8), (20,), (4,)], [], 160),
        (BAG, [(9, 8), (20,), (4,), None, None, None, (20,)], [*[None] * 3, False, 0, False], 320),
        ("aten::_embedding_bag_dense_backward", [(4, 8), (20,), (20,)], [*[None] * 5, 9], 160),
    ],
)
def test_arguments_at_the_end_may_be_left_out(name: str, shapes: list[Any], values: list[Any], flops: int) -> None:
    """And a factor for each index of a bag is one FLOP more for each element."""
    assert fs.work(name, shapes, values=values).flops == flops


@pytest.mark.parametrize(
    ("name", "shapes", "why"),
    [
        ("_C::rms_norm", [(4, 8), (4, 8)], "expects: result! input weight epsilon#"),
        # only kernels tell it
        ("aten::index", [(1000, 64), [None, (10,)]], "gives no work for these arguments"),
        ("aten::index", [(1000, 64), [(10,)]], "gives no work for these arguments"),
        ("aten::cat", [[], 0], "gives no work for these arguments"),
    ],
)
def test_unknown_work_says_why(name: str, shapes: list[Any], why: str) -> None:
    found = fs.work(name, shapes)
    assert math.isnan(found.flops) or math.isnan(found.bytes)
    assert math.isnan(found.bytes) and why in str(found.why)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["aten::cat", [PAIR], [["float32"] * 3]], ValueError, "3 dtypes for a list of 2 tensors"),
        (["aten::cat", [PAIR], [None]], ValueError, "dtype must be one of"),
        (["aten::mm", PAIR, "float33"], ValueError, "dtype must be one of"),
        (["aten::mm", [(8, -8), (8, 8)]], ValueError, "negative size"),
        (["aten::cat", [[SQUARE, 3]]], TypeError, "a shape is a sequence of integers"),
        (["aten::mm", ["8", (8, 8)]], TypeError, "sequence of integers"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fs.work(*arguments)


def test_the_least_time_of_work_is_that_of_the_devices_peaks() -> None:
    def least(*given: Any, **options: Any) -> float:
        return fs.roofline_time(*given, device="NVIDIA H200", **options)

    product = fs.work("aten::mm", [(8192, 8192), (8192, 8192)], "bfloat16")
    assert least(product) == pytest.approx(product.flops / 989.4e12 * 1e6, rel=1e-3)
    added = fs.work("aten::add", [(8192, 8192), (8192, 8192)])
    assert least(added) == pytest.approx(3 * 4 * 8192**2 / 4.8e12 * 1e6, rel=1e-3)
    assert least(1e12, 1e6, unit="bf16_tensor") == pytest.approx(1e18 / 989.4e12, rel=1e-3)
    assert math.isnan(least(fs.work("mylib::unheard_of", [(8,)])))
    for name in ("H200", "NVIDIA H2000"):
        with pytest.raises(ValueError, match="did you mean 'NVIDIA H200'"):
            fs.roofline_time(1e9, 1e6, device=name)
    with pytest.raises(ValueError, match="unit must be one of"):
        least(1e9, 1e6, unit="fp5")


RULES = """
import math
import flopscope as fs

def scale(call):
    elements = math.prod(call.shapes[0])
    return {"flops": elements, "bytes_read": 2 * elements, "bytes_written": 2 * elements}

def register():
    fs.register_work("scalelib::scale", scale)
"""


def test_an_installed_package_brings_its_own_rules(tmp_path: Path) -> None:
    points = "[flopscope.work]\nscalelib = scalelib.work_rules:register\nbroken = scalelib.unheard_of:register\n"
    files = {"scalelib/__init__.py": "", "scalelib/work_rules.py": RULES, "scalelib-1.0.dist-info/METADATA":
             "Metadata-Version: 2.1\nName: scalelib\nVersion: 1.0\n",
             "scalelib-1.0.dist-info/entry_points.txt": points}  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    program = "import flopscope as fs; print(fs.work('scalelib::scale', [(3, 5)], 'bfloat16').bytes)"
    root = Path(fs.__file__).parent.parent
    done = ended(program, env={"PYTHONPATH": f"{root}:{tmp_path}", "PATH": ""})
    assert done.stdout.strip() == "60.0", done.stderr
    assert "the work rules of broken" in done.stderr
