"""check(): kernels that are wrong or that gain time by doing less are refused, and honest ones are judged."""

import functools
import html
import json
import math
import pickle
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.checked import BRIEF, JUDGED, x

import flopscope as fs
from flopscope.cli.program import main
from flopscope.measuring.arrays import Guarded, address_of, values_of
from flopscope.measuring.checking.bench import Output
from flopscope.measuring.checking.inputs import Inputs
from flopscope.measuring.checking.judge import deviation, difference, expect

torch: Any = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def softmax(a: Any) -> Any:
    return torch.softmax(a, -1)


def product(a: Any, b: Any) -> Any:
    return a @ b


def total(a: Any) -> Any:
    return a.sum(-1)


def doubled(a: Any) -> Any:
    return a.mul_(2)


# Kernels that are refused: what is wrong with them, the kernel, the reference, the shapes of the arguments ------------


def _memo() -> Callable[..., Any]:
    """Return a function that computes once per shape."""
    known: dict[Any, Any] = {}

    def by_shape(a: Any) -> Any:
        return known.setdefault(a.shape, softmax(a)) if a.shape not in known else known[a.shape]

    return by_shape


def _remembered() -> Callable[..., Any]:
    """Return a function that is honest unless it is given the memory of its latest call."""
    state: dict[str, Any] = {"at": 0}

    def patient(a: Any) -> Any:
        if state["at"] != a.data_ptr() or state["out"].shape != a.shape:
            state.update(at=a.data_ptr(), out=softmax(a))
        return state["out"].clone()

    return patient


def late(a: Any) -> Any:
    out = torch.zeros_like(a)

    def work() -> None:
        time.sleep(0.02)
        out.copy_(softmax(a))

    threading.Thread(target=work).start()
    return out


POOL: list[Any] = []


def pooled(a: Any) -> Any:
    from concurrent.futures import ThreadPoolExecutor

    if not POOL:
        POOL.append(ThreadPoolExecutor(1))
        POOL[0].submit(int).result()
    out = torch.full_like(a, torch.nan)
    POOL[0].submit(lambda: (time.sleep(0.0005), out.copy_(softmax(a))))
    return out


class Lazy(torch.Tensor):  # type: ignore[misc]
    """A tensor that computes when it is used."""

    @staticmethod
    def __new__(cls, a: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)

    def __init__(self, a: Any) -> None:
        self.a = a

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return op(*(softmax(one.a) if isinstance(one, Lazy) else one for one in args), **(kwargs or {}))


def no_tail(a: Any) -> Any:
    out = torch.zeros_like(a)
    out[: len(a) // 16 * 16] = softmax(a[: len(a) // 16 * 16])
    return out


def unstable(a: Any) -> Any:
    return a.exp() / a.exp().sum(-1, keepdim=True)


def in_place(a: Any) -> Any:
    return a.sub_(a.amax(-1, keepdim=True)).exp_().div_(a.sum(-1, keepdim=True))


def beyond(a: Any) -> Any:
    longer = a.as_strided((a.numel() + 8,), (1,), a.storage_offset())
    longer[-8:] = 0
    return total(a)


def of_bf16(a: Any, b: Any) -> Any:
    return (a.bfloat16() @ b.bfloat16()).float()


def summed_in_bf16(a: Any, b: Any) -> Any:
    out = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for k in range(a.shape[1]):
        out += a[:, k : k + 1] * b[k : k + 1]
    return out


def squares_only(a: Any, b: Any) -> Any:
    return a.t() @ b if a.shape[0] == a.shape[1] else a @ b


SQUARE = {"a": (48, 72), "b": (72, 33)}
REFUSED = [
    ("wrong", "other normal values|normal values.*instead", _memo(), softmax, [(48, 72)]),
    ("invalid", "results of other calls|instead", _remembered(), softmax, [(48, 72)]),
    ("invalid", "thread", late, softmax, [(48, 72)]),
    ("invalid", "before its outputs are complete|nan instead", pooled, softmax, [(48, 72)]),
    ("invalid", "compute only when it is read", Lazy, softmax, [(48, 72)]),
    ("wrong", "is 0 instead of", torch.zeros_like, softmax, [(48, 72)]),
    ("wrong", "instead of", torch.empty_like, softmax, [(48, 72)]),
    ("wrong", "shapes .*is 0 instead of", no_tail, softmax, [(48, 72)]),
    ("wrong", "large values.*nan instead", unstable, softmax, [(48, 72)]),
    ("wrong", "changes its argument 0", in_place, softmax, [(48, 72)]),
    ("wrong", "returns the memory of its argument 0", lambda a: a, lambda a: a.clone(), [(48, 72)]),
    ("wrong", "writes beyond its argument 0", beyond, total, [(48, 72)]),
    ("wrong", "a NaN.*is 0 instead of nan", lambda a: torch.nan_to_num(a.relu()), torch.relu, [(48, 72)]),
    ("wrong", "errors are those of bfloat16", of_bf16, product, [*SQUARE.values()]),
    ("wrong", r"shapes \(33, 33\)", squares_only, product, [*SQUARE.values()]),
    ("wrong", "is of float64, not float32", lambda a: softmax(a.double()), softmax, [(48, 72)]),
    ("wrong", "2 outputs, not 1", lambda a: (softmax(a), a + 0), softmax, [(48, 72)]),
    ("wrong", "allowed", lambda a: softmax(a) + 1e-4 * torch.rand_like(a), softmax, [(48, 72)]),
    ("invalid", "not deterministic", torch.rand_like, torch.rand_like, [(48, 72)]),
    ("invalid", "does nothing would be right", torch.zeros_like, torch.zeros_like, [(48, 72)]),
]


@pytest.mark.parametrize("verdict, why, kernel, reference, shapes", REFUSED)
def test_kernels_that_are_wrong_or_do_less_are_refused(
    verdict: str, why: str, kernel: Any, reference: Any, shapes: Sequence[tuple[int, ...]]
) -> None:
    found = fs.check(kernel, reference, *(x(*shape) for shape in shapes), **BRIEF)
    assert found.verdict in ({verdict, "wrong"} if "|" in why else {verdict}), str(found)
    assert re.search(why, found.reason), found.reason
    assert str(found).startswith(f"{found.kernel} is {found.verdict}: {found.reason}\n")


def test_sums_in_a_short_dtype_are_wrong_where_the_dtype_of_the_arguments_is_right() -> None:
    a, b = (x(*shape).bfloat16() for shape in ((16, 512), (512, 24)))
    assert fs.check(summed_in_bf16, product, a, b, **BRIEF).verdict == "wrong"
    in_float32 = lambda a, b: (a.float() @ b.float()).bfloat16()  # noqa: E731
    assert fs.check(in_float32, product, a, b, **BRIEF).verdict in JUDGED


# Honest kernels -------------------------------------------------------------------------------------------------------


def twin_softmax(a: Any) -> Any:
    e = (a - a.amax(-1, keepdim=True)).exp_()
    return e.div_(e.sum(-1, keepdim=True))


def blocks(a: Any, b: Any) -> Any:
    return sum(a[:, k : k + 16] @ b[k : k + 16] for k in range(0, a.shape[1], 16))


def one_by_one(a: Any) -> Any:
    return functools.reduce(torch.add, a.unbind(-1), torch.zeros(a.shape[:-1]))


HONEST = [
    (twin_softmax, softmax, [(48, 72)]), (lambda a: a.clamp_min(0), torch.relu, [(48, 72)]),
    (lambda a, b: torch.einsum("ik,kj->ij", a, b), product, [*SQUARE.values()]), (blocks, product, [*SQUARE.values()]),
    (one_by_one, total, [(24, 300)]), (lambda a: a.add_(a), doubled, [(48, 72)]),
    (lambda a: a.t(), lambda a: a.t(), [(48, 72)]),
    (lambda a: (a.max(-1).values, a.max(-1).indices), lambda a: tuple(a.max(-1)), [(48, 72)]),
]  # fmt: skip


@pytest.mark.parametrize("kernel, reference, shapes", HONEST)
def test_honest_kernels_are_judged_by_their_time(kernel: Any, reference: Any, shapes: Any) -> None:
    found = fs.check(kernel, reference, *(x(*shape) for shape in shapes), **BRIEF)
    assert found.verdict in JUDGED, str(found)
    assert found.times is not None and found.times.rounds >= 3, str(found)
    assert len(found.cases) > 8 and f"{found.times.ratio:.4g} times its time" in str(found)


def test_a_kernel_that_works_twice_is_slower() -> None:
    twice = lambda a: (softmax(a), softmax(a))[1]  # noqa: E731
    found = fs.check(twice, softmax, x(512, 512), max_time=3.0, peaks="none")
    assert found.verdict in ("slower", "unclear") and found.times is not None and found.times.ratio > 1.2, str(found)


def test_results_may_be_written_to_an_argument_alone() -> None:
    def into(a: Any, out: Any) -> None:
        torch.softmax(a, -1, out=out)

    def half(a: Any, out: Any) -> None:
        out[: len(a) // 2] = softmax(a[: len(a) // 2])

    assert fs.check(into, softmax, x(), x(), outputs=[1], **BRIEF).verdict in JUDGED
    wrong = fs.check(half, softmax, x(), x(), outputs=[1], **BRIEF)
    assert wrong.verdict == "wrong" and "nan instead of" in wrong.reason


def test_a_kernel_may_refuse_other_shapes_and_the_note_says_so() -> None:
    def of_48_rows(a: Any) -> Any:
        if len(a) != 48:
            raise ValueError("48 rows are needed")
        return softmax(a)

    found = fs.check(of_48_rows, softmax, x(), **BRIEF)
    assert found.verdict in JUDGED
    assert any("refuses shapes" in note and "48 rows are needed" in note for note in found.notes)


def test_inputs_of_a_function_are_those_of_their_seed() -> None:
    def make(seed: int) -> tuple[Any, ...]:
        return torch.randn(8, 16, generator=torch.Generator().manual_seed(seed)), torch.arange(8) + seed % 2

    taken: list[int] = []

    def rows(a: Any, at: Any) -> Any:
        taken.append(int(at[0]))
        return a[at % 8] * 1

    assert fs.check(rows, lambda a, at: a[at % 8].clone(), inputs=make, **BRIEF).verdict in JUDGED
    assert set(taken) == {0, 1}


# Other libraries ------------------------------------------------------------------------------------------------------


def test_arrays_of_numpy_jax_and_flopscope_are_checked() -> None:
    a, b = (x(*shape).numpy() for shape in SQUARE.values())
    assert fs.check(lambda a, b: np.einsum("ik,kj->ij", a, b), np.matmul, a, b, **BRIEF).verdict in JUDGED
    rounded = lambda a, b: a.astype("f2") @ b.astype("f2")  # noqa: E731
    assert fs.check(lambda a, b: rounded(a, b).astype("f4"), np.matmul, a, b, **BRIEF).verdict == "wrong"
    one, two = fs.from_numpy(a), fs.from_numpy(b)
    assert fs.check(fs.matmul, fs.matmul, one, two, **BRIEF).verdict in JUDGED
    jax = pytest.importorskip("jax")
    double = jax.jit(lambda a: a + a)
    assert fs.check(double, lambda a: 2 * a, jax.numpy.asarray(a), **BRIEF).verdict in JUDGED
    assert fs.check(lambda a: double(a) + 1e-3, double, jax.numpy.asarray(a), **BRIEF).verdict == "wrong"


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "bool"])
def test_arrays_cross_processes_and_keep_their_values(dtype: str) -> None:
    given = (x(4, 6) * 3).to(getattr(torch, dtype))
    other = pickle.loads(pickle.dumps(given))
    assert other.dtype == given.dtype and torch.equal(other, given) and other.data_ptr() != given.data_ptr()
    own = Guarded(fs.zeros((4, 6), dtype=dtype), values_of(given)).array
    assert (values_of(pickle.loads(pickle.dumps(own))) == values_of(given)).all() and own.dtype == dtype
    guarded = Guarded(given, values_of(given), layout="strided")
    assert torch.equal(guarded.array, given) and not guarded.array.is_contiguous() and guarded.intact
    assert address_of([guarded.array, guarded.array[1:]]) == address_of(guarded.array)


# The allowed error ----------------------------------------------------------------------------------------------------


def test_the_allowed_error_covers_other_orders_of_a_sum_and_no_shorter_dtype() -> None:
    draw = np.random.default_rng(0)
    a, b = draw.standard_normal((64, 4096)), draw.standard_normal((4096, 8))
    a, b = a.astype("f4").astype("f8"), b.astype("f4").astype("f8")
    rounded = [(a * (1 + 2.0**-24 * draw.uniform(-1, 1, a.shape))) @ b for _ in range(3)]
    blas = (a.astype("f4") @ b.astype("f4")).astype("f8")
    expected = expect(Output("", blas, "float32", "numpy"), a @ b, rounded)
    in_order = np.zeros((64, 8), "f4")
    for k in range(4096):
        in_order += a[:, k : k + 1].astype("f4") * b[k : k + 1].astype("f4")
    assert not difference(Output("", in_order.astype("f8"), "float32", "numpy"), expected)
    for bits, named in ((13, "tf32 or float16"), (16, "bfloat16")):
        half, kept = np.uint32(1 << (bits - 1)), np.uint32(2**32 - (1 << bits))
        c, d = ((one.astype("f4").view("u4") + half & kept).view("f4").astype("f8") for one in (a, b))
        found = difference(Output("", c @ d, "float32", "numpy"), expected)
        assert f"those of {named}, not of float32" in found


@pytest.mark.parametrize(
    ("shape", "columns"),
    [((), 1), ((0,), 1), ((5,), 5), ((3, 0), 1), ((4, 3, 7), 21), ((7, 33), 33), ((300, 1000), 1000)],
)
def test_the_allowed_error_is_that_of_its_formula(shape: tuple[int, ...], columns: int) -> None:
    draw = np.random.default_rng(0)
    values = np.asarray(draw.standard_normal(shape) * 10 ** draw.uniform(-5, 5, shape))
    given, *moved = (np.asarray(values * (1 + e * draw.standard_normal(shape))) for e in (1e-4, 1e-7, 1e-7))
    if values.size > 99:
        values[0, :4], given[0, 4], moved[0][0, 5] = (np.nan, np.nan, -np.inf, 1e39), np.inf, np.inf
    found = expect(Output("", given, "float32", "numpy"), values, moved)
    rows, dtyped, *others = (one.reshape(-1, columns) for one in (values, given, *moved))
    with np.errstate(invalid="ignore"):
        unit = np.sqrt(sum((one - rows) ** 2 for one in others) / 2)
    unit = np.where(np.isfinite(unit), unit, 0.0)
    unit = np.maximum(unit, np.sqrt(np.mean(unit**2, axis=-1, keepdims=True)) / 2)
    finite = np.isfinite(rows)
    sizes = np.where(finite, np.abs(rows), 0.0)
    typical = np.sqrt(np.sum(sizes**2, axis=-1) / np.maximum(np.count_nonzero(finite, axis=-1), 1))
    allowed = 2.0**-23 * (4 * sizes + 4 * typical[:, None]) + 64 * unit + np.finfo(np.float32).tiny
    own = np.where(np.isfinite(dtyped) & finite, np.abs(dtyped - rows) / allowed, 0.0).max(initial=0.0)
    most = (sizes + math.sqrt(np.mean(rows[finite] ** 2) if finite.any() else 0.0)) / 16
    wanted = np.maximum(allowed, np.minimum(allowed * 4 * own, most)).reshape(shape)
    finite = finite.reshape(shape)
    assert found.unit == pytest.approx(unit.reshape(shape), rel=1e-12)
    assert np.allclose(found.allowed[finite], wanted[finite], rtol=1e-12, atol=0)
    result = np.asarray(values + wanted * draw.uniform(-1.5, 1.5, shape))
    with np.errstate(invalid="ignore"):
        wrong = finite & (np.abs(result - values) > wanted)
    if values.size > 99:
        given[0, 3], result[0, :4] = np.inf, (np.nan, 1.0, np.inf, np.inf)
        wrong[0, :4] = False, True, True, False  # in float32, 1e39 is infinite
    assert deviation(result, found)[0] == np.count_nonzero(wrong)


def test_contents_never_repeat_and_shapes_change_together() -> None:
    inputs = Inputs((x(), x(72, 33), 3), None, 5, frozenset())
    several = [inputs.content(number) for number in range(12)]
    assert len({one[0].tobytes() for one in several}) == 12 and all(one[2] == 3 for one in several)
    shapes = [case.name for case in inputs.cases(None) if case.name.startswith("shapes")]
    assert shapes[:2] == ["shapes (49, 72), (72, 33)", "shapes (48, 73), (73, 33)"]
    assert "shapes (33, 33), (33, 33)" in shapes and len(shapes) == len({*shapes})


# measure() and compare_times() ----------------------------------------------------------------------------------------


def test_what_is_beyond_the_device_is_impossible() -> None:
    a, memo = np.ones((64, 64), "f4"), {}

    def cached() -> Any:
        return memo.setdefault(1, a @ a)

    found = fs.measure(cached, flops=1e12, bytes=1e9, unit="fp32", max_time=0.1)
    assert found.bound == "impossible"
    says = "impossible: it cannot have done this work (it may cache its result, or the stated work is wrong)."
    assert found.verdict.endswith(says) and "FLOP/s" not in str(found)


def test_a_function_that_returns_the_same_memory_at_once_is_not_faster() -> None:
    a = np.ones((300, 300), "f4")
    known = a @ a

    def remembered() -> Any:
        return known

    found = fs.compare_times(remembered, lambda: np.sort(a @ a, axis=0), max_time=0.2)
    assert found.verdict == "unclear" and found.impossible.endswith("of its time and returns the same memory again")
    assert str(found).startswith(f"remembered cannot be compared with <lambda>, as {found.impossible}: ")
    assert (known == 300).all()  # what was overwritten is put back


def test_a_function_that_writes_its_memory_at_each_call_may_be_much_faster() -> None:
    a, out = np.ones(64, "f4"), np.empty(64, "f4")
    found = fs.compare_times(lambda: np.add(a, a, out=out), lambda: [one + one for one in a] * 100, max_time=0.2)
    slow = fs.compare_times(lambda: np.add(a, a, out=out), lambda: sum(range(20_000)), max_time=0.2)
    assert not found.impossible and not slow.impossible and slow.ratio < 0.1 and (out == 2).all()


def test_calls_of_torch_and_of_numpy_have_known_work() -> None:
    a = x(64, 64)
    for call, arrays in ((torch.mm, (a, a)), (np.matmul, (a.numpy(), a.numpy())), (lambda: a @ a, ())):
        found = fs.measure(call, *arrays, max_time=0.05, peaks="none")
        assert found.flops == 2 * 64**3 and found.bytes_total_moved == 3 * 4 * 64**2, str(call)
    assert fs.measure(np.add, a.numpy(), a.numpy(), max_time=0.05, peaks="none").bytes_total_moved == 3 * 4 * 64**2
    assert np.isnan(fs.measure(lambda: np.sort(a.numpy()), max_time=0.05).flops)


def test_what_goes_on_after_the_return_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"while its thread .* still runs; let it join"):
        fs.measure(late, x())
    with pytest.raises(TypeError, match="returns a future while its code runs"):
        from concurrent.futures import Future

        fs.measure(Future)
    assert any("a Lazy, which may compute only when it is read" in note for note in fs.measure(Lazy, x()).notes)


def test_a_limit_of_a_test_is_the_outputs_of_a_reference() -> None:
    from flopscope.measuring.perf.check import Check, Settings
    from flopscope.measuring.perf.limits import PerfFailure

    a = x()
    checked = Check(Settings(), twin_softmax, (a,), {"max_time": 0.1, "peaks": "none"}).matches(softmax)
    assert checked.record()["limits"][0]["call"] == "matches(softmax)"
    with pytest.raises(PerfFailure, match=r"likely +for large values, output.* is nan instead of"):
        Check(Settings(), unstable, (a,), {"max_time": 0.1, "peaks": "none"}).matches(softmax)


def test_baselines_are_timed_beside_the_kernel_if_they_are_right() -> None:
    def by_parts(a: Any) -> Any:
        e = (a - a.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)

    others = {"by parts": by_parts, "zeros": torch.zeros_like, "a crash": lambda a: a[7777], "itself": twin_softmax}
    found = fs.check(twin_softmax, softmax, x(256, 512), baselines=others, **BRIEF)
    assert found.verdict in JUDGED and [one.name for one in found.baselines] == ["by parts", "itself"]
    assert found.baselines[0].times.ratio < 1 and found.baselines[1].times.verdict != "faster"  # surely only when idle
    assert "beside by parts twin_softmax " in (said := " ".join(str(found).split())), said
    assert "note: zeros is not timed: output[" in said and "note: a crash is not timed: IndexError" in said
    assert [one["name"] for one in found.to_dict()["baselines"]] == ["by parts", "itself"]
    shown = html.unescape(re.sub("<[^>]*>", "", found._repr_html_()))
    assert found.sentence in shown and all(text in shown for text in found.facts().values())


# The command ----------------------------------------------------------------------------------------------------------

KERNELS = """
import os, signal, time
import numpy as np
def good(a): print("printed"); return a + a
def wrong(a): return a * 2.01
def killed(a): os.kill(os.getpid(), signal.SIGSEGV)
def left(a): os._exit(3)
def hangs(a): time.sleep(60)
"""
REFERENCES = """
import numpy as np
def twice(a): return 2 * a
def inputs(seed): return (np.random.default_rng(seed).standard_normal((30, 40)),)
"""


@pytest.mark.parametrize(
    "kernel, status, says",
    [
        ("good", 0, "ran in     a process of its own"),
        ("wrong", 1, "wrong is wrong: for the given values, output["),
        ("killed", 1, "killed is wrong: its process was killed by SIGSEGV"),
        ("left", 1, "left is wrong: its process ended with status 3"),
        ("hangs", 1, "hangs is wrong: it did not return within 2 s"),
    ],
)
def test_a_kernel_runs_in_a_process_of_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], kernel: str, status: int, says: str
) -> None:
    for name, text in (("kernels.py", KERNELS), ("references.py", REFERENCES)):
        (tmp_path / name).write_text(text)
    at, to = tmp_path / "references.py", tmp_path / "found.json"
    seconds = "2" if kernel == "hangs" else "60"
    limits = ("--vary", "--peaks", "none", "--max-time", "0.2", "--timeout", seconds, "--json", str(to))
    names = (f"{tmp_path}/kernels.py:{kernel}", "--against", f"{at}:twice")
    assert main(["check", *names, *limits]) == status
    out = capfd.readouterr().out
    assert says in out and "printed" not in out
    found = json.loads(to.read_text())
    assert found["format"] == "flopscope.check" and found["kernel"] == kernel and found["isolated"] is True
    assert (found["times"] is None) == (status == 1)


def test_a_kernel_beside_its_reference_is_not_isolated(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "both.py").write_text(f"{KERNELS}\n{REFERENCES}")
    named = [f"{tmp_path}/both.py:{name}" for name in ("good", "twice", "good")]
    options = ("--vary", "--peaks", "none", "--max-time", "0.2", "--json", str(tmp_path / "found.json"))
    assert main(["check", named[0], "--against", named[1], "--baseline", named[2], *options]) == 0
    out, found = capfd.readouterr().out, json.loads((tmp_path / "found.json").read_text())
    assert found["isolated"] is False and "both.py has the reference, which the kernel could call" in out
    assert [one["name"] for one in found["baselines"]] == ["good"]
