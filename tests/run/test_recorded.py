"""flopscope run: the process that reports knows of a recording what the program's own process would."""

import math
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import flopscope as fs
from flopscope.cli.recorded import Recorded, read_recorded
from flopscope.cli.reporting import Report, _of_long_steps
from flopscope.cli.run import _described, _rules_of
from flopscope.results.exports import send
from flopscope.results.results import Results
from flopscope.support.hints import RUN_HINTS

IDLE = "time in which no op ran"


def own_program() -> fs.profile:
    x = fs.ones((64, 64), device="cpu")
    settings: dict[str, Any] = dict.fromkeys(("record_shapes", "with_stack", "profile_memory", "sample_stacks"), True)
    with fs.profile(**settings, schedule=fs.schedule(wait=0, warmup=1, active=3)) as prof:
        for _ in range(4):
            with fs.record_function("part", flops=1e6, bytes=2e6):
                fs.matmul(x, x)
            time.sleep(0.01)
            fs.neg(x)
            prof.step()
    return prof


def torch_program() -> Any:
    torch = pytest.importorskip("torch")
    import flopscope.torch

    with flopscope.torch.profile(record_shapes=True, with_stack=True, sample_stacks=True) as prof:
        for _ in range(3):
            torch.ones(64, 64).mm(torch.ones(64, 64)).relu()
            time.sleep(0.01)
    return prof


def text_of(prof: Any) -> bytes:
    """Return what the program's process passes on."""
    text = BytesIO()
    if isinstance(prof, fs.profile):
        send(prof, text.write)
        return text.getvalue()
    kineto = prof._finished("trace")
    kineto.complete()
    with open(f"/proc/self/fd/{kineto._text()}", "rb") as file:
        return file.read()


def passed_on(prof: Any, path: Path, **more: Any) -> Recorded:
    rules = _rules_of(prof)
    path.write_bytes(text_of(prof))
    about = {"recorded": _described(prof), "rules": rules, "program": prof._program, "why_nothing": "", "sampled": True}
    found, why = read_recorded(str(path), about | {"hints": {}} | more)
    assert found is not None, why
    return found


def test_a_text_of_the_program_itself_gets_what_is_known_of_its_steps(tmp_path: Path) -> None:
    """As of a program with CUDA graphs: steps that were a warm-up for their replays are no steps."""
    steps = {"kind": "", "of": "", "steps": 3, "bare_steps": 0}
    assert passed_on(own_program(), tmp_path / "a.json").summary().to_dict()["recording"]["recorded_steps"] == 3
    found = passed_on(own_program(), tmp_path / "b.json", steps=steps).summary().to_dict()["recording"]
    assert found["step"] != "marked"


def test_of_a_long_step_it_is_told_what_took_it(tmp_path: Path) -> None:
    prof = own_program()
    (tmp_path / "a.json").write_bytes(text_of(prof))
    about = {"recorded": _described(prof), "rules": {}, "program": "", "why_nothing": "", "sampled": True, "hints": {}}
    path, steps = str(tmp_path / "a.json"), {"recorded_long": [7.0]}
    most = _of_long_steps([path], about | {"steps": steps})["long_most"]
    longest = prof.accounting(peaks="none").iloc[:-1].sort_values("total").iloc[-1]
    shares = {name: share for _, name, share in most}
    assert {took for took, *_ in most} == {7.0} and set(shares) <= {"flopscope::matmul", "flopscope::neg", IDLE}
    assert shares[IDLE] == pytest.approx(100 * longest.host / longest.total)
    assert sum(shares.values()) == pytest.approx(100) and list(shares.values()) == sorted(shares.values())[::-1]
    head = {"kind": "optimizer", "steps": 90, "long_steps": 4, "long": 9.0, "long_share": 0.5, "bare": 2.0, "low": 1.0}
    found = passed_on(prof, tmp_path / "b.json", steps=head | {"high": 3.0, "long_most": [list(one) for one in most]})
    told = found.summary().to_dict()["recording"]["long_steps"]
    assert (told["count"], told["median_us"], told["share_pct"]) == (4, 9.0, 50.0)
    assert [tuple(one.values()) for one in told["most"]] == [pytest.approx(one) for one in most]
    assert "One of these, recorded in 7.00us: " in " ".join(str(found.summary()).split())


def facts(prof: Results) -> Any:
    """Return what a profile says, but not where its times come from."""
    table = prof.key_averages(True, peaks="datasheet", group_by=["name", "shape", "category"]).to_pandas()
    accounting, events = prof.accounting(peaks="datasheet"), Results.events(prof).to_pandas()
    found: list[Any] = [
        prof.summary(peaks="datasheet").to_dict(),
        table.drop(columns="timing_source").to_dict("list"),
        accounting.to_dict("list"),
        sorted(k if k == "memory" else f"{k} {n}" for k, n in zip(events.kind, events.name, strict=True)),
        prof.lines().drop(columns="cpu_time").to_dict("list"),
        prof.step_breakdown().to_dict("list"),
        [dict(prof.hlo), dict(prof.graphs), prof.rank, prof.dropped, prof.timing_source, prof._program],
    ]
    found[0].pop("lines", None)
    found[0].pop("coverage", None)
    return found


def assert_alike(a: Any, b: Any, path: str = "") -> None:
    """Compare values; times in a trace are in ns."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            assert_alike(a[key], b[key], f"{path}/{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), path
        for place, (one, other) in enumerate(zip(a, b, strict=True)):
            assert_alike(one, other, f"{path}[{place}]")
    elif isinstance(a, float) and isinstance(b, float) and not math.isnan(a):
        assert a == pytest.approx(b, rel=1e-4, abs=0.01), path
    else:
        assert a == b or (a != a and b != b), f"{path}: {a!r} {b!r}"


@pytest.mark.parametrize("program", [own_program, torch_program])
def test_a_report_says_what_the_live_profile_says(program: Callable[[], Any], tmp_path: Path) -> None:
    prof = program()
    prof.hints = RUN_HINTS
    assert_alike(facts(prof), facts(passed_on(prof, tmp_path / "trace.json")))


def test_the_programs_rules_of_work_count(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import flopscope.torch

    fs.register_work("aten::relu", lambda call: {"flops": 7.0 * call.shapes[0][0], "bytes_read": 5, "bytes_written": 3})
    try:
        with flopscope.torch.profile(record_shapes=True) as prof:
            for size in (2, 3):
                torch.ones(size, 4).relu()
        found = passed_on(prof, tmp_path / "trace.json")  # as if by another process, where only the notes are known
        (row,) = [row for row in found.key_averages(peaks="none") if row.key == "aten::relu"]
        assert (row.flops, row.bytes_total_moved) == (35, 16)
    finally:
        fs.register_work("aten::relu", None)


def test_a_recording_that_does_not_arrive_has_a_reason(capfd: pytest.CaptureFixture[str]) -> None:
    outputs = dict.fromkeys(("rank", "report", "trace", "json", "free", "pattern"))
    about = {"why_nothing": "", "steps": None, "texts": [], "outputs": outputs, "measures": False, "summary": True}
    Report(about, BytesIO(b"")).make()
    assert "nothing was recorded: the program's process had no memory left" in capfd.readouterr().err
