"""flopscope run: what is recorded of a program, and the files that hold it."""

import importlib.util
import json
import signal
import time
from pathlib import Path

import pytest
from helpers.run_programs import OPS, done, own, run, run_with_report, script, start_with_report, wait_for

import flopscope as fs
from flopscope.cli.reporting import rank_of


def step_names(trace: Path) -> list[str]:
    """Return the steps of a trace in order of time, read by json."""
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    steps = [e for e in events if e.get("ph") == "X" and str(e.get("name")).startswith("ProfilerStep#")]
    return [e["name"] for e in sorted(steps, key=lambda e: float(e["ts"])) if e.get("cat") != "gpu_user_annotation"]


def names(trace: Path) -> list[str]:
    return [str(e.get("name")) for e in json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]]


def traced(folder: Path, path: Path, *options: object) -> tuple[str, list[str]]:
    """Run a program that succeeds; return flopscope's messages and the names of the events in its trace."""
    result = run(folder, "--no-report", "--no-summary", *options, "--trace", "t.json", path)
    assert result.returncode == 0, result.stderr
    return own(result.stderr), names(folder / "t.json")


# What is recorded without torch ---------------------------------------------------------------------------------------


def test_flopscopes_ops_are_recorded_and_stdout_stays_the_programs(tmp_path: Path) -> None:
    path = script(tmp_path, OPS + "print('only this')\nraise ValueError('at the end')\n")
    result = run(tmp_path, "--no-report", "--trace", "t.json", path)
    assert result.returncode == 1 and result.stdout == "only this\n"
    assert "ValueError: at the end" in result.stderr and "\nAdvice\n" in result.stderr
    assert names(tmp_path / "t.json").count("flopscope::neg") == 1
    assert own(result.stderr) == f"flopscope run: trace: {tmp_path / 't.json'}"
    quiet = run(tmp_path, "--no-report", "--no-summary", path)
    assert own(quiet.stderr) == "" and "Advice" not in quiet.stderr


def test_marked_steps_are_recorded(tmp_path: Path) -> None:
    path = script(tmp_path, OPS + "for i in range(6):\n    [fs.exp(x) for _ in range(i)]\n    fs.step()\n")
    _, found = traced(tmp_path, path, "--steps", "2:4")
    assert step_names(tmp_path / "t.json") == ["ProfilerStep#2", "ProfilerStep#3"]
    assert found.count("flopscope::exp") == 2 + 3 and found.count("flopscope::neg") == 0
    assert traced(tmp_path, path, "--steps", ":2")[1].count("flopscope::exp") == 0 + 1
    assert step_names(tmp_path / "t.json") == ["ProfilerStep#0", "ProfilerStep#1"]
    result = run(tmp_path, "--no-report", "--steps", "10:15", path)
    assert "ended in step 6, and --steps 10:15 begins later" in own(result.stderr)
    plain = script(tmp_path, OPS, "plain.py")
    assert "the program has no step" in own(run(tmp_path, "--no-report", "--steps", "1:", plain).stderr)
    assert done(tmp_path, [str(path)]).returncode == 0  # fs.step() does nothing outside


# Results --------------------------------------------------------------------------------------------------------------


def test_reports_do_not_replace_each_other(tmp_path: Path) -> None:
    path = script(tmp_path, OPS)
    for number in ("", "-2", "-3"):
        result = run_with_report(tmp_path, path)
        page = tmp_path / f"program.report{number}.html"
        assert page.read_text() == "report of 2 events" and own(result.stderr) == f"flopscope run: report: {page}"
    run_with_report(tmp_path, "-o", page, path)
    assert not (tmp_path / "program.report-4.html").exists()  # a named one is replaced
    assert not list(tmp_path.glob(".flopscope*"))


def test_the_report_is_written(tmp_path: Path) -> None:
    path = script(tmp_path, OPS + "import os; os.chdir('/')")
    result = run(tmp_path, "-o", "page.html", path)
    assert result.returncode == 0 and "<title>program.py" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert run(tmp_path, "-o", "page.html", path, RANK="3", WORLD_SIZE="8").returncode == 0
    assert "<title>program.py, rank 3" in (tmp_path / "page.rank3.html").read_text(encoding="utf-8")


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    return script(tmp_path, OPS + "import pathlib, time\npathlib.Path('ready').touch()\ntime.sleep(60)\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_program_after_its_report(number: signal.Signals, waiting: Path) -> None:
    folder = waiting.parent
    with start_with_report(folder, waiting) as process:
        wait_for(folder / "ready")
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == -number, err
    assert (folder / "program.report.html").read_text() == "report of 2 events"
    assert ("KeyboardInterrupt" in err) == (number is signal.SIGINT) and "cli/run.py" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_the_writing(number: signal.Signals, waiting: Path) -> None:
    folder = waiting.parent
    with start_with_report(folder, waiting, SLOW_REPORT="60") as process:
        wait_for(folder / "ready")
        process.send_signal(number)
        wait_for(folder / "program.report.begun")
        time.sleep(1.1)  # else it were a copy of the first
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert process.returncode == -number, err
    assert "the results are incomplete" in own(err) and not (folder / "program.report.html").exists()


def test_ctrl_c_while_a_finished_programs_report_is_written_keeps_its_status(tmp_path: Path) -> None:
    path = script(tmp_path, OPS + "raise SystemExit(3)")
    with start_with_report(tmp_path, path, SLOW_REPORT="60") as process:
        wait_for(tmp_path / "program.report.begun")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 3 and "the results are incomplete" in own(err)


# Ranks ----------------------------------------------------------------------------------------------------------------


def test_each_rank_has_files_of_its_own(tmp_path: Path) -> None:
    path = script(tmp_path, OPS)
    for rank in (0, 3):
        ranks = {"RANK": str(rank), "WORLD_SIZE": "8"}
        result = run_with_report(tmp_path, "-o", "r.html", "--trace", "t.json.gz", path, **ranks)
        assert result.returncode == 0
        trace = fs.load_trace(tmp_path / f"t.rank{rank}.json.gz")
        assert trace.rank == rank and (tmp_path / f"r.rank{rank}.html").exists()
        if rank == 0:
            assert "flopscope ranks t.rank*.json.gz" in own(result.stderr) and "\nAdvice\n" in result.stderr
        else:
            assert result.stderr == ""
    result = run_with_report(tmp_path, path, RANK="0", WORLD_SIZE="2")
    assert "with --trace FILE.json.gz" in own(result.stderr) and (tmp_path / "program.report.rank0.html").exists()


def test_the_rank_is_that_of_the_launcher() -> None:
    assert rank_of({}) is None and rank_of({"RANK": "0", "WORLD_SIZE": "1"}) is None and rank_of({"RANK": "x"}) is None
    assert rank_of({"RANK": "3", "WORLD_SIZE": "8"}) == {"rank": 3, "world_size": 8}
    assert rank_of({"SLURM_PROCID": "2", "SLURM_NTASKS": "4"}) == {"rank": 2, "world_size": 4}
    assert rank_of({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}) == {"rank": 1, "world_size": 2}
    assert rank_of({"PMI_RANK": "1", "PMI_SIZE": "2"}) == {"rank": 1, "world_size": 2}
    assert rank_of({"RANK": "5"}) == {"rank": 5} and rank_of({"RANK": "٣", "WORLD_SIZE": "8"}) is None
    alone = {"RANK": "0", "WORLD_SIZE": "1"}
    assert rank_of({**alone, "SLURM_PROCID": "2", "SLURM_NTASKS": "4"}) == {"rank": 2, "world_size": 4}


def test_the_begin_of_a_marked_step_0_is_unknown_without_a_window(tmp_path: Path) -> None:
    path = script(tmp_path, OPS + "for i in range(3):\n    fs.exp(x)\n    fs.step()\n")
    traced(tmp_path, path)
    assert step_names(tmp_path / "t.json") == ["ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"]
    traced(tmp_path, path, "--steps", "0:")
    assert step_names(tmp_path / "t.json")[0] == "ProfilerStep#0"


# torch ----------------------------------------------------------------------------------------------------------------

TRAIN = """
import sys, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for i in range(6):
    for _ in range(i):
        torch.cos(model.weight.detach())
    model(torch.rand(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.sin(model.weight.detach())
print(sys.argv[1:])
sys.exit(11)
"""


needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch")


@needs_torch
def test_the_steps_of_torchs_optimizer_are_recorded(tmp_path: Path) -> None:
    path = script(tmp_path, TRAIN)
    options = ["--no-report", "--steps", "2:4", "--trace", "t.json"]
    result = run(tmp_path, *options, path, "--lr", "1")
    assert (result.returncode, result.stdout) == (11, "['--lr', '1']\n")
    assert step_names(tmp_path / "t.json") == ["ProfilerStep#2", "ProfilerStep#3"]
    trace = fs.load_trace(tmp_path / "t.json")
    table = {row.key: row for row in trace.key_averages(group_by_input_shape=True)}
    assert table["aten::cos"].count == 2 + 3 and "aten::sin" not in table
    assert table["Optimizer.step#SGD.step"].count == 2
    frame = trace.key_averages(group_by=["name", "step"]).to_pandas()
    optimizer = frame[frame.key == "Optimizer.step#SGD.step"]
    assert sorted(optimizer.step) == ["ProfilerStep#2", "ProfilerStep#3"]  # the ranges nest


@needs_torch
def test_without_a_window_the_first_step_begins_with_the_first_optimizer(tmp_path: Path) -> None:
    path = script(tmp_path, "import torch\ntorch.tan(torch.rand(3))\n" + TRAIN)
    result = run(tmp_path, "--no-report", "--no-summary", "--trace", "t.json", path)
    assert result.returncode == 11 and "step 0" not in own(result.stderr)
    assert step_names(tmp_path / "t.json") == [f"ProfilerStep#{i}" for i in range(7)]
    frame = fs.load_trace(tmp_path / "t.json").key_averages(group_by=["name", "step"]).to_pandas()
    frame = frame[frame.device_type == "cpu"]
    assert frame[frame.key == "aten::tan"].step.isna().all()
    cosines = frame[frame.key == "aten::cos"]
    found = dict(zip(cosines.step, cosines["count"], strict=True))
    assert found == {f"ProfilerStep#{i}": i for i in range(1, 6)}
    assert set(frame[frame.key == "Optimizer.step#SGD.step"].step) == {f"ProfilerStep#{i}" for i in range(6)}


@needs_torch
def test_a_whole_program_that_imports_torch_late_is_recorded(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        OPS + "def work():\n    import torch, threading\n    torch.rand(3)\n"
        "    thread = threading.Thread(target=lambda: torch.cos(torch.rand(5)))\n    thread.start(); thread.join()\n"
        "    raise KeyError('late')\nwork()\n",
    )
    result = run(tmp_path, "--no-report", "--trace", "t.json", path)
    assert result.returncode == 1 and "KeyError: 'late'" in result.stderr
    assert "2 ops and kernels before the import of torch are left out" in own(result.stderr)
    found = names(tmp_path / "t.json")
    assert "aten::rand" in found and "aten::cos" in found and not step_names(tmp_path / "t.json")


@needs_torch
@pytest.mark.parametrize(("options", "shapes"), [([], True), (["--shapes"], True), (["--no-shapes"], False)])
def test_shapes_are_recorded_unless_the_user_declines(options: list[str], shapes: bool, tmp_path: Path) -> None:
    path = script(tmp_path, "import torch\ntorch.mm(torch.ones(8, 4), torch.ones(4, 2))\n")
    result = run(tmp_path, "--no-report", *options, "--trace", "t.json", path)
    assert result.returncode == 0, result.stderr
    events = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    (product,) = [event for event in events if event.get("name") == "aten::mm"]
    assert product["args"].get("Input Dims") == ([[8, 4], [4, 2]] if shapes else None)
    assert ("--no-shapes" in result.stderr) is not shapes, "only a summary without shapes says what left them out"


@needs_torch
def test_the_arguments_of_generated_kernels_are_recorded(tmp_path: Path) -> None:
    """Of ranges as Inductor opens them, whose arguments torch drops if all threads are recorded."""
    path = script(tmp_path, """
        import torch
        x, y, out = (torch.rand(8, 4) for _ in range(3))
        def launch(name, arguments, **options):
            with torch._C._profiler._RecordFunctionFast(name, arguments, options):
                if "triton" not in name: torch.add(x, y, out=out)
        for _ in range(3):
            launch("triton_poi_fused_add_0", (x, y, out, 32), grid="(1,)")
        launch("triton_poi_fused_mul_1", [x.bfloat16(), None, out, 32], stream=0)
        launch("strange", [object()])
        with torch._C._profiler._RecordFunctionFast("Torch-Compiled Region: 0/0"):
            torch.sub(x, y)
        """)  # fmt: skip
    traced(tmp_path, path)
    trace = fs.load_trace(tmp_path / "t.json")
    rows = {row.key: row for row in trace.key_averages(group_by_input_shape=True)}
    add = rows["triton_poi_fused_add_0"]
    assert add.count == 3 and add.input_shapes[:3] == [[8, 4]] * 3 and add.bytes_total_moved == 3 * 3 * 32 * 4
    assert rows["triton_poi_fused_mul_1"].input_shapes[:3] == [[8, 4], [], [8, 4]]
    assert rows["aten::add"].count == 1 and not rows["strange"].input_shapes[0]
    assert "flopscope::arguments" not in rows and rows["Torch-Compiled Region: 0/0"].count == 1


@needs_torch
def test_seconds_of_torch_are_recorded_on_all_threads(tmp_path: Path) -> None:
    path = script(tmp_path, """
        import sys, threading, time, torch
        until = time.monotonic() + float(sys.argv[1])
        seen = False
        def recorded():
            return torch.autograd.profiler._is_profiler_enabled
        def work(op):
            global seen
            while time.monotonic() < until and (recorded() or not seen):
                seen = seen or recorded()
                op(torch.rand(5))
                time.sleep(0.01)
        thread = threading.Thread(target=work, args=(torch.cos,))
        thread.start()
        work(torch.sin)
        thread.join()
        torch.exp(torch.rand(5))
        """)  # fmt: skip
    for begin, end in ((4, 9), (12, 24), (40, 80)):  # on a slow machine, the import of torch takes longer
        window = ("--seconds", f"{begin}:{end}")
        result = run(tmp_path, "--no-report", "--no-summary", *window, "--trace", "t.json", path, end)
        assert result.returncode == 0, result.stderr
        found = {*names(tmp_path / "t.json")} if (tmp_path / "t.json").exists() else set()
        if {"aten::sin", "aten::cos"} <= found:
            break
    assert {"aten::sin", "aten::cos"} <= found and "aten::exp" not in found


@needs_torch
def test_workers_that_are_forked_while_torch_is_recorded_run(tmp_path: Path) -> None:
    path = script(tmp_path, """
        import torch
        from torch.utils.data import DataLoader
        loader = DataLoader(torch.rand(8, 2), batch_size=4, num_workers=2, multiprocessing_context="fork")
        print(sum(len(batch) for batch in loader))
        """)  # fmt: skip
    result = run(tmp_path, "--no-report", "--no-summary", "--trace", "t.json", path)
    assert (result.returncode, result.stdout) == (0, "8\n"), result.stderr
    pids = {e.get("pid") for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if "aten::" in e["name"]}
    assert len(pids) == 1 and own(result.stderr).count("\n") == 0


@needs_torch
@pytest.mark.parametrize(("window", "recorded"), [((), range(4)), (("--steps", "1:3"), range(1, 3))])
def test_memory_of_torch_is_recorded(window: tuple[str, ...], recorded: range, tmp_path: Path) -> None:
    path = script(tmp_path, """
        import torch
        optimizer = torch.optim.SGD([torch.zeros(1)], 1.0)
        kept = []
        for i in range(4):
            kept.append(torch.rand(1000 + i, 16))
            optimizer.step()
        """)  # fmt: skip
    traced(tmp_path, path, "--memory", *window)
    events = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    allocated = [e["args"]["Bytes"] for e in events if e.get("name") == "[memory]"]
    assert [bytes_ for bytes_ in allocated if bytes_ > 4096] == [64 * (1000 + i) for i in recorded]
    rows = {row.key: row for row in fs.load_trace(tmp_path / "t.json").key_averages()}
    assert rows["aten::rand"].cpu_memory_usage == sum(64 * (1000 + i) for i in recorded)


# Runs the command line as on a machine with a GPU, where torch's profiler must not initialize CUDA.
WITH_GPU = """
import sys
from flopscope.record import torch_hooks
torch_hooks.starts_cuda = lambda torch: True
from flopscope.cli.program import main
sys.exit(main(["run", "--no-report", "--no-summary", *sys.argv[1:]]))
"""


@needs_torch
def test_on_a_gpu_machine_torch_is_recorded_from_its_first_use(tmp_path: Path) -> None:
    path = script(tmp_path, """
        import torch
        initialize = torch.cuda._lazy_init.__wrapped__
        model, x = torch.nn.Linear(5, 5), torch.rand(5)
        torch.sin(x)
        if __import__('sys').argv[1:]:
            torch.cos(model(x))
        assert (torch.cuda._lazy_init is initialize) == bool(__import__('sys').argv[1:])
        """)  # fmt: skip
    result = done(tmp_path, ["-c", WITH_GPU, "--trace", "t.json", str(path), "call"])
    assert result.returncode == 0, result.stderr
    found = names(tmp_path / "t.json")
    assert "aten::linear" in found and "aten::cos" in found and "aten::sin" not in found
    result = done(tmp_path, ["-c", WITH_GPU, "--no-samples", str(path)])
    assert result.returncode == 0 and "no GPU and no torch.nn.Module was used" in own(result.stderr)


OWN = "with fs.profile() as prof:\n    fs.exp(x)\nprint([r.key for r in prof.key_averages(peaks='none')])\n"
TORCHS = """
import torch
torch.cos(torch.rand(5))
with torch.profiler.profile() as prof:
    torch.sin(torch.rand(5))
print([e.key for e in prof.key_averages() if e.key == 'aten::sin'])
"""


@pytest.mark.parametrize(
    ("code", "profiler", "ours", "its"),
    [
        (OPS + OWN, "flopscope.profile", "flopscope::neg", "flopscope::exp"),
        pytest.param(TORCHS, "torch.profiler", "aten::cos", "aten::sin", marks=needs_torch),
    ],
)
def test_a_profile_in_the_program_goes_first(code: str, profiler: str, ours: str, its: str, tmp_path: Path) -> None:
    result = run(tmp_path, "--no-report", "--no-summary", "--trace", "t.json", script(tmp_path, code))
    assert (result.returncode, result.stdout) == (0, f"['{its}']\n")
    assert f"starts {profiler}" in own(result.stderr)
    found = names(tmp_path / "t.json")
    assert ours in found and its not in found


@needs_torch
def test_a_program_that_imports_torch_and_runs_nothing_has_no_results_but_its_lines(tmp_path: Path) -> None:
    path = script(tmp_path, "import torch\n")
    result = run_with_report(tmp_path, "--no-samples", path)
    said = "nothing was recorded: the program ran no op of torch or flopscope in this process; without --no-samples, "
    assert result.returncode == 0 and said in own(result.stderr)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["program.py"]
    result = run(tmp_path, "--no-report", "--trace", "t.json", path)
    first, *rest = result.stderr.splitlines()
    if "waited" in first:  # beside other programs
        first = rest[rest.index("") + 1]
    assert first.startswith("Where the time went, by line: the main thread") and "importing" in result.stderr
    assert "record_function" not in result.stderr


def test_a_program_too_short_to_sample_says_so(tmp_path: Path) -> None:
    result = run_with_report(tmp_path, script(tmp_path, "print('hello')\n"))
    assert result.stdout == "hello\n" and own(result.stderr).endswith("in this process, and took less than 10 ms")


@needs_torch
def test_torchs_profiler_is_quiet_and_the_environment_stays_the_programs(tmp_path: Path) -> None:
    program = """
    import os, sys, torch
    torch.sin(torch.rand(5))
    print(os.environ.get("KINETO_LOG_LEVEL"), "torch._inductor" in sys.modules, hasattr(torch, "_inductor"))
    """
    result = run(tmp_path, "--no-report", "--no-summary", script(tmp_path, program))
    assert (result.returncode, result.stdout) == (0, "None False True\n") and "profiler_start" not in result.stderr
    result = run(tmp_path, "--no-report", "--no-summary", tmp_path / "program.py", KINETO_LOG_LEVEL="0")
    assert result.stdout == "0 False True\n"
