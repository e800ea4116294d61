"""check(): results that are not what they seem, other arguments, equal values in another order, what refusals say."""

import asyncio
import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.checked import BRIEF, JUDGED, x

import flopscope as fs
from flopscope.cli.program import main
from flopscope.measuring.checking.bench import Bench, Output
from flopscope.measuring.checking.inputs import Inputs
from flopscope.measuring.checking.judge import difference, expect
from flopscope.measuring.counting import Counts
from flopscope.support.peaks import Peaks

torch: Any = pytest.importorskip("torch")


def exp(a: Any) -> Any:
    return a.exp()


def in_order(a: Any) -> Any:
    return torch.sort(a.reshape(-1)).values


def _by_largest() -> Callable[..., Any]:
    """Return a function that knows the elements by the largest of them, whatever their order."""
    known: dict[Any, Any] = {}

    def by_largest(a: Any) -> Any:
        key = (a.shape, float(a.max()) if a.numel() else 0.0)
        return known.setdefault(key, in_order(a) if key not in known else None).clone()

    return by_largest


def _late_when_timed() -> Callable[..., Any]:
    """Return a function that leaves its work to a thread after so many calls that it is being timed."""
    pool, calls = ThreadPoolExecutor(1), []
    pool.submit(int).result()

    def late_when_timed(a: Any) -> Any:
        calls.append(a.shape)
        if calls.count(a.shape) < 40:
            return exp(a)
        out = torch.zeros_like(a)
        pool.submit(lambda: [torch.exp(a, out=out) for _ in range(50)])
        return out

    return late_when_timed


class LazyList(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        yield exp(self.a)

    def __len__(self) -> int:
        return 1


def lazy_list(a: Any) -> Any:
    found = LazyList()
    found.a = a  # type: ignore[attr-defined]
    return found


class Intercepting(torch.Tensor):  # type: ignore[misc]
    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            args[0].as_subclass(torch.Tensor).copy_(exp(args[0].__dict__["a"]))
        return super().__torch_function__(function, types, args, kwargs or {})


def intercepting(a: Any) -> Any:
    out = torch.empty_like(a).as_subclass(Intercepting)
    out.__dict__["a"] = a
    return out


class Copying(np.ndarray):  # type: ignore[type-arg]
    def copy(self, *_: Any, **__: Any) -> Any:
        self[...] = np.exp(self.a)  # type: ignore[attr-defined]
        return np.array(self)


def copying(a: Any) -> Any:
    out = np.empty_like(a).view(Copying)
    out.a = a  # type: ignore[attr-defined]
    return out


class Duck:
    def __init__(self, a: Any) -> None:
        self.a, self.shape, self.dtype = a, a.shape, a.dtype

    def __getitem__(self, at: Any) -> Any:
        return exp(self.a)[at]


async def later(a: Any) -> Any:
    await asyncio.sleep(0)
    return exp(a)


REFUSED = [
    ("invalid", "results of other calls", _by_largest(), in_order),
    ("invalid", "before its outputs are complete|results of other calls", _late_when_timed(), exp),  # by the load
    ("wrong", "it returns a LazyList, in which no array is found", lazy_list, exp),
    ("wrong", "it returns None, in which no array is found", lambda a: None, exp),
    ("invalid", "reference returns None, in which no array is found", exp, lambda a: None),
    ("invalid", "returns a Intercepting, which may compute only when it is read", intercepting, exp),
    ("invalid", "returns a generator without running its code", lambda a: (exp(a) for _ in range(1)), exp),
    ("invalid", "later returns a coroutine without running its code", later, exp),
    ("invalid", "returns a future while its code runs", lambda a: Future(), exp),
    ("invalid", "returns a Duck, which is no array of torch", Duck, exp),
    ("invalid", "on meta, whose values cannot be read", lambda a: torch.empty(a.shape, device="meta"), exp),
    ("invalid", "torch.sparse_coo on cpu, whose values cannot be read", lambda a: exp(a).to_sparse(), exp),
    ("wrong", "zeros in argument 0, output.* is 1 instead of 0", lambda a: a >= 0, lambda a: a > 0),
]


@pytest.mark.parametrize("verdict, why, kernel, reference", REFUSED)
def test_results_that_are_not_complete_arrays_are_refused(verdict: str, why: str, kernel: Any, reference: Any) -> None:
    reference.__name__ = "reference" if reference.__name__ == "<lambda>" else reference.__name__
    torch.set_num_threads(1)
    found = fs.check(kernel, reference, x(), **BRIEF)
    assert found.verdict == verdict and re.search(why, found.reason), str(found)


def test_methods_of_an_array_do_not_compute_its_values() -> None:
    found = fs.check(copying, np.exp, x().numpy(), **BRIEF)
    assert found.verdict == "wrong" and "instead of" in found.reason


def test_integers_alone_are_varied_and_a_cached_result_of_them_is_wrong() -> None:
    numbers, known = np.random.default_rng(0).integers(0, 99, 400), {}

    def by_shape(a: Any) -> Any:
        return known.setdefault(a.shape, np.sort(a))

    assert fs.check(lambda a: np.sort(a, kind="stable"), np.sort, numbers, **BRIEF).verdict in JUDGED
    found = fs.check(by_shape, np.sort, numbers, **BRIEF)
    assert found.verdict == "wrong" and found.reason.startswith("for drawn values, output[")


def test_complex_numbers_are_rounded_and_varied() -> None:
    a = torch.view_as_complex(x(16, 48, 2))
    transform = torch.exp(-2j * torch.pi * torch.outer(torch.arange(48), torch.arange(48)).double() / 48)
    assert fs.check(torch.fft.fft, lambda a: a @ transform.to(a.dtype), a, **BRIEF).verdict in JUDGED
    assert fs.check(lambda a: torch.fft.fft(a.real + 0j), torch.fft.fft, a, **BRIEF).verdict == "wrong"
    known: list[Any] = []
    once = lambda a: (known or known.append(a + 1) or known)[0]  # noqa: E731
    assert fs.check(once, lambda a: a + 1, a, **BRIEF).verdict == "wrong"


def test_arrays_in_tuples_lists_and_dicts_are_varied() -> None:
    def sums(pairs: list[tuple[Any, Any]], more: dict[str, Any], scale: float) -> list[Any]:
        return [scale * (a + b) + more["c"] for a, b in pairs]

    def once(pairs: list[tuple[Any, Any]], more: dict[str, Any], scale: float) -> list[Any]:
        kept[:] = kept or [sums(pairs, more, scale)]
        return kept[0]

    def changes(pairs: list[tuple[Any, Any]], more: dict[str, Any], scale: float) -> list[Any]:
        found = sums(pairs, more, scale)
        more["c"].zero_()
        return found

    kept: list[Any] = []
    arguments = [(x(), x()), (x(), x())], {"c": x(), "n": 7}, 0.5
    assert fs.check(sums, sums, *arguments, **BRIEF).verdict in JUDGED
    assert fs.check(once, sums, *arguments, **BRIEF).verdict == "wrong"
    assert "it changes its argument 1['c'], which sums does not" in str(fs.check(changes, sums, *arguments, **BRIEF))


def test_contents_of_timed_calls_are_not_the_same_elements_in_another_order() -> None:
    inputs = Inputs((x(),), None, 0, frozenset())
    several = [np.sort(inputs.content(number)[0].ravel()) for number in range(3, 60, 3)]
    assert len({one.tobytes() for one in several}) == len(several)
    guarded = inputs.fresh(7)
    assert guarded.moved == {0}  # type: ignore[union-attr]


HONEST = [
    (lambda a: tuple(torch.sort(a, stable=True)), lambda a: tuple(torch.sort(a)), "not compared: .* of output.1."),
    (
        lambda a: a.shape[-1] - 1 - a.flip(-1).argmax(-1),
        lambda a: a.argmax(-1),
        "zeros in argument 0, not compared: 48",
    ),
    (lambda a: torch.round(a * (127 / 4)).to(torch.int32), lambda a: torch.round(a / 4 * 127).to(torch.int32), ""),
    (lambda a: torch.stack(torch.where(a > 0), 1), lambda a: torch.nonzero(a > 0), ""),
    (lambda a: a.double().softmax(-1).float(), lambda a: a.softmax(-1), ""),
    (
        lambda a: torch.fft.irfft(torch.fft.rfft(a, 128) * torch.fft.rfft(torch.ones(9, dtype=a.dtype), 128), 128)[
            :, :80
        ],
        lambda a: torch.nn.functional.conv1d(a[:, None], torch.ones(1, 1, 9, dtype=a.dtype), padding=8)[:, 0, :80],
        "a NaN in argument 0, .* NaN on one side alone",
    ),
]


@pytest.mark.parametrize("kernel, reference, note", HONEST)
def test_kernels_that_decide_equal_values_otherwise_are_judged(kernel: Any, reference: Any, note: str) -> None:
    found = fs.check(kernel, reference, x(), **({"shapes": []} if "NaN" in note else {}), **BRIEF)
    assert found.verdict in JUDGED, str(found)
    assert any(re.search(note, one) for one in found.notes) or not note, str(found)


def test_the_error_of_a_reference_in_float64_is_that_of_float32_scaled() -> None:
    a = x().double() + 100
    exact = lambda a: ((a - a.mean(-1, keepdim=True)) ** 2).mean(-1)  # noqa: E731
    found = fs.check(exact, lambda a: (a * a).mean(-1) - a.mean(-1) ** 2, a, **BRIEF)
    assert found.verdict in JUDGED, str(found)
    assert fs.check(lambda a: exact(a.float()).double(), exact, a, **BRIEF).verdict == "wrong"


def test_a_reference_in_one_dtype_alone_allows_other_orders_of_its_sums() -> None:
    a, b = x(16, 3000), x(3000, 24)
    blocks = lambda a: sum(a[:, k : k + 100] @ b[k : k + 100] for k in range(0, 3000, 100))  # noqa: E731
    found = fs.check(blocks, lambda a: a @ b, a, shapes=[], **BRIEF)
    assert found.verdict in JUDGED and any("does not run in float64" in note for note in found.notes), str(found)
    rounded = lambda a: (a.bfloat16() @ b.bfloat16()).float()  # noqa: E731
    assert fs.check(rounded, lambda a: a @ b, a, shapes=[], **BRIEF).verdict == "wrong"


def test_numbers_that_differ_are_written_with_the_digits_that_differ() -> None:
    given = Output("", np.array([1.0]), "float64", "numpy")
    found = difference(given._replace(values=np.array([1 + 2.0**-30])), expect(given, given.values, [given.values]))
    assert found.startswith("output[0] is 1.0000000009313226 instead of 1, ")


def test_refusals_for_one_reason_are_one_note_unless_the_shape_was_asked_for() -> None:
    def of_48(a: Any) -> Any:
        return exp(a).reshape(48, 72)

    notes = fs.check(of_48, exp, x(), **BRIEF).notes
    assert any("refuses shapes (49, 72) and " in note for note in notes)
    found = fs.check(of_48, exp, x(), shapes=[[(3, 4)]], **BRIEF)
    assert found.verdict == "wrong" and "for shapes (3, 4), it raises RuntimeError: " in found.reason
    noted = fs.check(exp, exp, x().t(), **BRIEF).notes
    assert "argument 0 is not contiguous: contiguous ones are checked and timed instead" in noted


@pytest.mark.parametrize(
    "options, says",
    [
        ({"shapes": [[(3, 4), (3, 4)]]}, "shapes= needs a list of 1 shape per case"),
        ({"shapes": [(3, 4)]}, "shapes= needs a list of 1 shape per case"),
        ({"peaks": "all"}, "peaks must be one of 'measured'"),
        ({"inputs": lambda seed: x()}, "inputs must return a tuple of arguments, not Tensor"),
        ({"inputs": lambda seed: (x(seed + 3, 4),)}, "arrays of the same shapes for each seed"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        fs.check(exp, exp, x(), **{**BRIEF, **options})


# The command ----------------------------------------------------------------------------------------------------------

KERNELS = """
import os, time
calls = []
def good(a): return a + a
def raises(a): raise ValueError("mine")
def forks(a): os.fork(); return a + a
def hangs(a):
    calls.append(1)
    if len(calls) > 60: time.sleep(60)
    return a + a
"""
REFERENCES = """
import numpy as np
def twice(a): return 2 * a
def raises(a): raise ValueError("theirs")
def inputs(seed): return (np.random.default_rng(seed).standard_normal((30, 40)),)
def one(seed): return np.ones(3)
def of_nothing(): return ()
"""


@pytest.mark.parametrize(
    "kernel, options, status, says",
    [
        ("kernels.py:forks", "", 0, ""),
        ("kernels.py:hangs", "--timeout 1", 1, "hangs is wrong: it did not return within 1 s"),
        ("kernels.py:raises", "", 1, "kernels.py:raises raised ValueError: mine"),
        ("leaves.py:good", "", 1, "leaves.py:good cannot be loaded: its process ended with status 3"),
        ("damaged.py:good", "", 1, "damaged.py raised SyntaxError in "),
        ("./kernels:good", "", 1, "there is no module './kernels' in PYTHONPATH"),
        ("kernels.py", "", 1, "'kernels.py' is not of the form MODULE:FUNCTION"),
        ("kernels.py:good", "--against references.py:raises", 1, "references.py:raises raised ValueError in "),
        ("kernels.py:good", "--against damaged.py:twice", 1, "damaged.py raised SyntaxError in "),
        ("kernels.py:good", "--inputs references.py:one", 2, "must return a tuple of arguments, not ndarray"),
        ("kernels.py:good", "--inputs references.py:of_nothing", 2, "must be callable with 1 argument: too many"),
        ("kernels.py:good", "--max-time 0", 2, "max_time must be positive"),
    ],
)
def test_the_command_says_whose_code_failed(
    tmp_path: Path, monkeypatch: Any, capfd: Any, kernel: str, options: str, status: int, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {"kernels": KERNELS, "references": REFERENCES, "leaves": "import os; os._exit(3)", "damaged": "def f(:"}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    given = ["--against", "references.py:twice", "--vary", "--peaks", "none", "--max-time", "0.1", *options.split()]
    assert main(["check", kernel, *given]) == status
    out, err = capfd.readouterr()
    assert says in out + err and "Traceback" not in out + err


def test_a_path_without_its_suffix_is_refused_by_measure(tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("folder")
    for name in ("./folder", "./folder/file", "..", "."):
        assert main(["measure", f"{name}:f"]) == 1
        assert f"there is no module {name!r} in PYTHONPATH" in capfd.readouterr().err


def test_the_limit_reads_the_inputs_and_writes_the_outputs_at_the_bandwidth_of_both(monkeypatch: Any) -> None:
    peaks = Peaks("measured", {}, 9e9, copy_bandwidth=2e9, read_bandwidth=9e9, write_bandwidth=1e9)
    monkeypatch.setattr("flopscope.measuring.checking.check.peaks_for", lambda stage, source: {"measured": peaks})

    def into(a: Any, out: Any) -> None:
        np.add(a[::2], a[1::2], out=out)

    found = fs.check(into, lambda a: a[::2] + a[1::2], np.ones((96, 72)), np.ones((48, 72)), outputs=[1], max_time=0.1)
    out = 48 * 72 * 8
    assert found.times is not None, str(found)
    us = 1e6 * (2 * out / 2e9 + out / 9e9)  # what is written alone is not read
    assert found.pct_limit == pytest.approx(100 * us / found.times.f_median)


def test_calls_that_differ_are_noted_and_wrong_ones_under_load_are_wrong() -> None:
    alone = threading.active_count()

    def shaky(error: float) -> Callable[[Any], Any]:
        return lambda a: a.exp() * (1 + error * (threading.active_count() > alone))

    found = fs.check(shaky(2.0**-23), exp, x(), **BRIEF)
    said = [note for note in found.notes if "calls with the same inputs" in note]
    assert found.verdict in JUDGED and [re.sub(r"[\d.]+", "…", note) for note in said] == [
        "calls with the same inputs under load of other work differ by up to … × the allowed error"
    ]
    wrong = fs.check(shaky(0.1), exp, x(), **BRIEF)
    assert wrong.verdict == "wrong" and "for the given values under load of other work, output[" in wrong.reason
    assert threading.active_count() == alone


@pytest.mark.parametrize(
    "name, kernel, first, again, refused",
    [
        ("all is needed", np.negative, 100.0, 100.0, True),
        ("a cache is filled at the next call", np.negative, 100.0, 27648.0, False),
        ("more than half is read", np.negative, 15000.0, 15000.0, False),
        ("half of the rows alone are needed", lambda a: a[::2] + 0.0, 100.0, 100.0, False),
        ("a large value is needed everywhere", lambda a: np.maximum(a, 0), 100.0, 100.0, True),
    ],
)
def test_inputs_that_are_needed_must_be_read(
    name: str, kernel: Any, first: float, again: float, refused: bool, monkeypatch: Any
) -> None:
    def read(bench: Bench, which: int, contents: Any) -> float:
        assert len(contents) > 1 and len({one.places for one in contents}) == len(contents)
        return again

    a = np.random.default_rng(1).standard_normal((48, 72))
    place = "flopscope.measuring.checking."
    monkeypatch.setattr(f"{place}check.devices_of", lambda arrays: {"cpu"})
    monkeypatch.setattr(f"{place}bench.Bench.counted", lambda *_: (Counts(dram_bytes_read=first), None, []))
    monkeypatch.setattr(f"{place}bench.Bench.read", read)
    properties = {**fs._core.cpu_properties(), "l2_bytes": a.nbytes // 4}
    monkeypatch.setattr("flopscope._core.cpu_properties", lambda: properties)
    found = fs.check(kernel, lambda a: kernel(a) + 0.0, a, **BRIEF)
    assert (found.verdict == "invalid") == refused, str(found)
    if refused:
        assert found.reason.endswith("reads 100 B of 27.65 kB that its outputs depend on"), found.reason
        assert "counted" in found.facts()
    properties["l2_bytes"] = a.nbytes // 2
    assert fs.check(kernel, lambda a: kernel(a) + 0.0, a, **BRIEF).verdict in JUDGED, "the L2 may hold them"
