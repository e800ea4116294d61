"""flopscope run: the program runs as under python, and its recording holds the right part of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from once import Once

import flopscope as fs
from flopscope.cli.run import Outputs, rank_of, with_rank
from flopscope.results.results import Results

ROOT = Path(__file__).parent.parent
needs_report = pytest.mark.skipif(not hasattr(Results, "write_report"), reason="this version writes no reports")
# Runs the command line with a report that says which process wrote it.
WITH_REPORT = """
import os, pathlib, sys, time
from flopscope.results.results import Results
def write_report(self, path):
    pathlib.Path(path).with_suffix(".begun").touch()
    if "SLOW_REPORT" in os.environ:
        time.sleep(60)
    if "BAD_REPORT" in os.environ:
        raise OSError(28, "No space left on device", path)
    with open(path, "w") as file:
        file.write(f"report of {len(self)} events")
Results.write_report = write_report
from flopscope.cli.program import main
sys.exit(main(["run", *sys.argv[1:]]))
"""
OPS = "import flopscope as fs\nx = fs.ones((4, 4), device='cpu')\nfs.neg(x)\n"


def environment(**more: str) -> dict[str, str]:
    plain = {name: text for name, text in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "SLURM_PROCID")}
    return {**plain, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **more}


def script(folder: Path, text: str, name: str = "program.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def start(folder: Path, command: list[str], **more: str) -> subprocess.Popen[str]:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [sys.executable, *command], cwd=folder, env=environment(**more), text=True, **pipes, start_new_session=True
    )


def done(folder: Path, command: list[str], text: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    with start(folder, command, **more) as process:
        out, err = process.communicate(text, timeout=120)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def run(folder: Path, *arguments: object, text: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    return done(folder, ["-m", "flopscope", "run", *map(str, arguments)], text, **more)


def run_with_report(folder: Path, *arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    return done(folder, ["-c", WITH_REPORT, *map(str, arguments)], **more)


def own(err: str) -> str:
    """Return the messages of flopscope."""
    return "\n".join(line for line in err.splitlines() if line.startswith("flopscope run: "))


def others(err: str) -> str:
    """Return what is no message of flopscope."""
    return "".join(line for line in err.splitlines(True) if not line.startswith("flopscope run: "))


def step_names(trace: Path) -> list[str]:
    """Return the steps of a trace in order of time, read by json."""
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    steps = [e for e in events if e.get("ph") == "X" and str(e.get("name")).startswith("ProfilerStep#")]
    return [e["name"] for e in sorted(steps, key=lambda e: float(e["ts"])) if e.get("cat") != "gpu_user_annotation"]


def names(trace: Path) -> list[str]:
    return [str(e.get("name")) for e in json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]]


# The program runs as under python -------------------------------------------------------------------------------------

PROGRAMS = {
    "returns": "print('done')",
    "arguments": "import sys; print(sys.argv, __name__, __file__, sys.path[0], __spec__, __package__, __doc__)",
    "names of main": "print(sorted(globals()), __builtins__.__name__, __loader__.name, __loader__.path)",
    "standard input": "import sys; print(sys.stdin.read().upper(), end=''); print('x', end='')",
    "exit 3": "import sys; sys.exit(3)",
    "exit None": "import sys; sys.exit()",
    "exit True": "import sys; sys.exit(True)",
    "exit 256 + 7": "import sys; sys.exit(263)",
    "exit -1": "import sys; sys.exit(-1)",
    "exit text": "import sys; print('out'); sys.exit('a reason')",
    "exit object": "import sys; sys.exit(['a', 'list'])",
    "raise SystemExit": "raise SystemExit",
    "exception": """
        def f(x):
            return g(x)
        def g(x):
            return 1 / x
        f(0)
        """,
    "chained exception": """
        try:
            {}['key']
        except KeyError as e:
            raise ValueError('while') from e
        """,
    "syntax error": "print(1)\nx = = 2\n",
    "excepthook": "import sys; sys.excepthook = lambda kind, value, trace: print('hook', kind.__name__, value); 1 / 0",
    "failing excepthook": "import sys\ndef hook(*_): raise OSError('in hook')\nsys.excepthook = hook\n1 / 0",
    "exiting excepthook": "import sys; sys.excepthook = lambda *_: sys.exit(9); 1 / 0",
    "atexit": "import atexit, sys; atexit.register(lambda: print('at exit')); sys.exit(4)",
    "exit in atexit": "import atexit, sys; atexit.register(sys.exit, 5); sys.exit(4)",
    "os._exit": "import os, sys; print('kept', flush=True); os._exit(6)",
    "warning": "import warnings; warnings.warn('careful'); warnings.warn('old', DeprecationWarning)",
    "error as warning": "import warnings; warnings.simplefilter('error'); warnings.warn('careful')",
    "closed streams": "import sys; sys.stdout.close(); sys.exit(0)",
    "encoding": "# -*- coding: latin-1 -*-\nimport sys; print(ascii('\xe9'), sys.stdout.errors, sys.stderr.errors)",
    "pickle": """
        import pickle
        class Point:
            x = 1
        print(pickle.loads(pickle.dumps(Point())).x, Point.__module__)
        """,
    "spawn": """
        import multiprocessing, sys
        class Point:
            def __init__(self, x): self.x = x
        def double(point): return Point(2 * point.x)
        if __name__ == '__main__':
            with multiprocessing.get_context('spawn').Pool(1) as pool:
                print([point.x for point in pool.map(double, [Point(1), Point(2)])])
        """,
    "fork": """
        import os, sys
        pid = os.fork()
        if pid == 0:
            print('child', flush=True)
            sys.exit(8)
        print('parent', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """,
    "terminated worker": """
        import multiprocessing, time
        for _ in range(20):
            process = multiprocessing.get_context('fork').Process(target=time.sleep, args=(60,))
            process.start(); process.terminate(); process.join()
            print(process.exitcode)
        """,
    "thread": """
        import threading, time
        threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()
        print('main')
        """,
    "executor left running": """
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        print(pool.submit(lambda: 5).result())
        """,
    "process pool left running": """
        from concurrent.futures import ProcessPoolExecutor
        import multiprocessing
        pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context('fork'))
        print(pool.submit(abs, -5).result())
        """,
    "own handler": """
        import os, signal, sys
        signal.signal(signal.SIGTERM, lambda *_: (print('handled'), sys.exit(7)))
        os.kill(os.getpid(), signal.SIGTERM)
        """,
    "interrupted": "import os, signal; os.kill(os.getpid(), signal.SIGINT); import time; time.sleep(9)",
    "raises KeyboardInterrupt": "raise KeyboardInterrupt('by hand')",
    "SIGTERM": "import os, signal, sys; print(1, flush=True); os.kill(os.getpid(), signal.SIGTERM)",
    "SIGKILL": "import os, signal, sys; os.kill(os.getpid(), signal.SIGKILL)",
    "changes folder": "import os; os.mkdir('below'); os.chdir('below'); print(os.getcwd())",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_as_under_python(name: str, tmp_path: Path) -> None:
    results = []
    for command in (["program.py"], ["-m", "flopscope", "run", "program.py"]):
        folder = tmp_path / "same"  # the paths in tracebacks are equal
        folder.mkdir()
        text = textwrap.dedent(PROGRAMS[name])
        (folder / "program.py").write_bytes(text.encode("latin-1"))
        result = done(folder, [*command, "a", "--flag", "--", "-o", "x"], "some text\n")
        results.append(result)
        folder.rename(tmp_path / f"before{len(results)}")
    plain, profiled = results
    assert (profiled.returncode, profiled.stdout) == (plain.returncode, plain.stdout)
    assert others(profiled.stderr) == plain.stderr
    if name not in ("os._exit", "SIGKILL"):
        assert own(profiled.stderr).startswith("flopscope run: nothing was recorded: the program ran no op")


def test_a_module_a_folder_and_an_archive_run_as_under_python(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    text = (
        "import sys; print(sys.argv, __name__, __file__, sys.path[0], __spec__ and __spec__.name, __package__); 1 / 0"
    )
    for name in ("__main__.py", "part.py"):
        script(package, text, name)
    import zipfile

    with zipfile.ZipFile(tmp_path / "archive.pyz", "w") as archive:
        archive.write(package / "part.py", "__main__.py")
    cases = [
        ["-m", "package", "-m", "--x"],
        ["-m", "package.part"],
        ["package", "1"],
        ["archive.pyz"],
        ["-m", "absent"],
    ]
    cases += [["./package/part.py"], ["-m", "package.absent"]]
    for case in cases:
        plain, profiled = done(tmp_path, case), run(tmp_path, *case)
        assert (profiled.returncode, profiled.stdout) == (plain.returncode, plain.stdout), case
        assert others(profiled.stderr) == plain.stderr, case


def test_a_script_of_a_link_finds_its_neighbours(tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    script(below, "import neighbour; print(neighbour.__file__)")
    script(below, "", "neighbour.py")
    (tmp_path / "link.py").symlink_to(below / "program.py")
    assert run(tmp_path, "link.py").stdout == done(tmp_path, ["link.py"]).stdout != ""


def test_a_missing_script_is_an_error_like_pythons(tmp_path: Path) -> None:
    plain, profiled = done(tmp_path, ["absent.py"]), run(tmp_path, "absent.py")
    assert profiled.returncode == plain.returncode == 2
    message = plain.stderr[plain.stderr.index("can't open") :]
    assert profiled.stderr == f"flopscope run: {message}"
    assert run(tmp_path).returncode == 2  # no script at all


@pytest.mark.parametrize(
    "options",
    [
        *(["--steps", text] for text in ("5", "a:b", "3:3", "4:2", "-1:2", "1:2:3", "1.5:2")),
        *(["--seconds", text] for text in ("5", "x:", "2:1", "-1:", "nan:", "1e3:")),
        ["--steps", "1:2", "--seconds", "1:2"],
        ["--unknown"],
        ["-o", "a.html", "--no-report"],
    ],
)
def test_wrong_options_end_before_the_program_runs(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from flopscope.cli.program import main

    path = script(tmp_path, "raise AssertionError")
    with pytest.raises(SystemExit) as end:
        main(["run", *options, str(path)])
    assert end.value.code == 2
    err = capsys.readouterr().err
    assert "error: " in err and "Traceback" not in err


def test_files_that_cannot_be_written_end_before_the_program_runs(tmp_path: Path) -> None:
    path = script(tmp_path, "print('ran')")
    for options, message in (
        (["-o", "none/page.html"], "there is no folder"),
        (["--trace", "none/trace.json"], "there is no folder"),
        (["-o", "."], "it is a folder"),
    ):
        result = run(tmp_path, *options, path)
        assert (result.returncode, result.stdout) == (2, "") and message in own(result.stderr)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["program.py"]


# What is recorded without torch ---------------------------------------------------------------------------------------


def test_flopscopes_ops_are_recorded_and_stdout_stays_the_programs(tmp_path: Path) -> None:
    path = script(tmp_path, OPS + "print('only this')\nraise ValueError('at the end')\n")
    result = run(tmp_path, "--no-report", "--trace", "t.json", path)
    assert result.returncode == 1 and result.stdout == "only this\n"
    assert "ValueError: at the end" in result.stderr and "Time" in result.stderr
    assert names(tmp_path / "t.json").count("flopscope::neg") == 1
    assert own(result.stderr) == f"flopscope run: trace: {tmp_path / 't.json'}"
    quiet = run(tmp_path, "--no-report", "--no-summary", path)
    assert own(quiet.stderr) == "" and "Time" not in quiet.stderr


def test_marked_steps_are_recorded(tmp_path: Path) -> None:
    path = script(tmp_path, OPS + "for i in range(6):\n    [fs.exp(x) for _ in range(i)]\n    fs.step()\n")
    result = run(tmp_path, "--no-report", "--no-summary", "--steps", "2:4", "--trace", "t.json", path)
    assert result.returncode == 0
    assert step_names(tmp_path / "t.json") == ["ProfilerStep#2", "ProfilerStep#3"]
    found = names(tmp_path / "t.json")
    assert found.count("flopscope::exp") == 2 + 3 and found.count("flopscope::neg") == 0
    run(tmp_path, "--no-report", "--no-summary", "--steps", ":2", "--trace", "t.json", path)
    assert step_names(tmp_path / "t.json") == ["ProfilerStep#0", "ProfilerStep#1"]
    assert names(tmp_path / "t.json").count("flopscope::exp") == 0 + 1
    result = run(tmp_path, "--no-report", "--steps", "10:15", path)
    assert "ended in step 6, and --steps 10:15 begins later" in own(result.stderr)
    plain = script(tmp_path, OPS, "plain.py")
    assert "the program has no step" in own(run(tmp_path, "--no-report", "--steps", "1:", plain).stderr)
    assert done(tmp_path, [str(path)]).returncode == 0  # fs.step() does nothing outside


def test_seconds_are_recorded(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        OPS + "import time\nuntil = time.monotonic() + 1.5\nwhile time.monotonic() < until:\n    fs.exp(x)\n"
        "    time.sleep(0.01)\n",
    )
    result = run(tmp_path, "--no-report", "--no-summary", "--seconds", "0.5:1", "--trace", "t.json", path)
    assert result.returncode == 0
    events = [e for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if e["name"] == "flopscope::exp"]
    assert 0 < len(events) < 100 and "flopscope::neg" not in names(tmp_path / "t.json")
    late = run(tmp_path, "--no-report", "--seconds", "100:", path)
    assert re.search(r"ended after [\d.]+ s, and --seconds 100: begins later", own(late.stderr))


def test_a_profile_of_the_program_takes_precedence(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        OPS + "with fs.profile() as prof:\n    fs.exp(x)\nprint([r.key for r in prof.key_averages(peaks='none')])\n",
    )
    result = run(tmp_path, "--no-report", "--no-summary", "--trace", "t.json", path)
    assert (result.returncode, result.stdout) == (0, "['flopscope::exp']\n")
    assert "starts its own flopscope.profile" in own(result.stderr)
    found = names(tmp_path / "t.json")
    assert "flopscope::neg" in found and "flopscope::exp" not in found


# Results --------------------------------------------------------------------------------------------------------------


def test_reports_do_not_replace_each_other(tmp_path: Path) -> None:
    path = script(tmp_path, OPS)
    for number in ("", "-2", "-3"):
        result = run_with_report(tmp_path, path)
        page = tmp_path / f"program.report{number}.html"
        assert page.read_text() == "report of 2 events"
        assert own(result.stderr) == f"flopscope run: report: {page}"
    run_with_report(tmp_path, "-o", page, path)
    assert not (tmp_path / "program.report-4.html").exists()  # a named one is replaced
    assert not list(tmp_path.glob(".flopscope*"))


def test_a_failing_report_changes_nothing(tmp_path: Path) -> None:
    path = script(tmp_path, OPS + "raise SystemExit(5)")
    result = run_with_report(tmp_path, path, BAD_REPORT="1")
    assert result.returncode == 5 and "No space left" in own(result.stderr)
    assert not (tmp_path / "program.report.html").exists()


@needs_report
def test_the_report_is_written(tmp_path: Path) -> None:
    path = script(tmp_path, OPS + "import os; os.chdir('/')")
    result = run(tmp_path, "-o", "page.html", path)
    assert result.returncode == 0 and "<html" in (tmp_path / "page.html").read_text(encoding="utf-8").lower()


def wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, f"{path} was not created"
        time.sleep(0.02)


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    return script(tmp_path, OPS + "import pathlib, time\npathlib.Path('ready').touch()\ntime.sleep(60)\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_program_after_its_report(number: signal.Signals, waiting: Path) -> None:
    folder = waiting.parent
    with start(folder, ["-c", WITH_REPORT, str(waiting)]) as process:
        wait_for(folder / "ready")
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == -number, err
    assert (folder / "program.report.html").read_text() == "report of 2 events"
    assert ("KeyboardInterrupt" in err) == (number is signal.SIGINT) and "cli/run.py" not in err


@pytest.mark.parametrize("first, second", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM)])
def test_a_second_signal_ends_the_writing(first: signal.Signals, second: signal.Signals, waiting: Path) -> None:
    folder = waiting.parent
    with start(folder, ["-c", WITH_REPORT, str(waiting)], SLOW_REPORT="1") as process:
        wait_for(folder / "ready")
        process.send_signal(first)
        wait_for(folder / "program.report.begun")
        process.send_signal(second)
        _, err = process.communicate(timeout=30)
    assert process.returncode == -first, err
    assert "the results are incomplete" in own(err)
    assert not (folder / "program.report.html").exists()


def test_ctrl_c_while_a_finished_programs_report_is_written_keeps_its_status(tmp_path: Path) -> None:
    path = script(tmp_path, OPS + "raise SystemExit(3)")
    with start(tmp_path, ["-c", WITH_REPORT, str(path)], SLOW_REPORT="1") as process:
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
            assert "flopscope ranks t.rank*.json.gz" in own(result.stderr) and "Time" in result.stderr
        else:
            assert result.stderr == ""
    result = run_with_report(tmp_path, path, RANK="0", WORLD_SIZE="2")
    assert "with --trace FILE.json.gz" in own(result.stderr)
    assert (tmp_path / "program.report.rank0.html").exists()


def test_the_rank_is_that_of_the_launcher() -> None:
    assert rank_of({}) is None and rank_of({"RANK": "0", "WORLD_SIZE": "1"}) is None
    assert rank_of({"RANK": "x"}) is None
    assert rank_of({"RANK": "3", "WORLD_SIZE": "8"}) == {"rank": 3, "world_size": 8}
    assert rank_of({"SLURM_PROCID": "2", "SLURM_NTASKS": "4"}) == {"rank": 2, "world_size": 4}
    assert rank_of({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}) == {"rank": 1, "world_size": 2}


@pytest.mark.parametrize(
    "name, expected",
    [
        ("report.html", "report.rank3.html"),
        ("a.b/t.json.gz", "a.b/t.rank3.json.gz"),
        ("t.gz", "t.rank3.gz"),
        ("bare", "bare.rank3"),
        ("train.report.html", "train.report.rank3.html"),
    ],
)
def test_the_rank_is_in_the_name(name: str, expected: str) -> None:
    assert with_rank(name, {"rank": 3}) == expected and with_rank(name, None) == name


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


@pytest.fixture(scope="module")
def torch_here() -> Iterator[None]:
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        pytest.skip("no torch")
    yield


@pytest.mark.usefixtures("torch_here")
def test_the_steps_of_torchs_optimizer_are_recorded(tmp_path: Path, once: Once) -> None:
    path = script(tmp_path, TRAIN)
    options = ["--no-report", "--steps", "2:4", "--shapes", "--trace", "t.json"]
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


@pytest.mark.usefixtures("torch_here")
def test_a_whole_program_that_imports_torch_late_is_recorded(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        OPS + "def work():\n    import torch, threading\n    torch.rand(3)\n"
        "    thread = threading.Thread(target=lambda: torch.cos(torch.rand(5)))\n    thread.start(); thread.join()\n"
        "    raise KeyError('late')\nwork()\n",
    )
    result = run(tmp_path, "--no-report", "--trace", "t.json", path)
    assert result.returncode == 1 and "KeyError: 'late'" in result.stderr
    assert "2 events before the import of torch are left out" in own(result.stderr)
    found = names(tmp_path / "t.json")
    assert "aten::rand" in found and "aten::cos" in found and not step_names(tmp_path / "t.json")


@pytest.mark.usefixtures("torch_here")
def test_seconds_of_torch_are_recorded_on_all_threads(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        import threading, time, torch
        from torch.utils.data import DataLoader
        begin = time.monotonic()
        def work():
            while time.monotonic() < begin + 4:
                torch.cos(torch.rand(5))
                time.sleep(0.02)
        thread = threading.Thread(target=work)
        thread.start()
        while time.monotonic() < begin + 4:
            torch.sin(torch.rand(5))
            time.sleep(0.02)
        thread.join()
        print(sum(len(batch) for batch in DataLoader(torch.rand(8, 2), batch_size=4, num_workers=2)))
        """,
    )
    result = run(tmp_path, "--no-report", "--seconds", ":4", "--trace", "t.json", path)
    assert (result.returncode, result.stdout) == (0, "8\n")
    assert {"aten::sin", "aten::cos"} <= {*names(tmp_path / "t.json")}


@pytest.mark.usefixtures("torch_here")
def test_a_torch_profiler_of_the_program_takes_precedence(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        import torch
        torch.cos(torch.rand(5))
        with torch.profiler.profile() as prof:
            torch.sin(torch.rand(5))
        print([e.key for e in prof.key_averages() if e.key == 'aten::sin'])
        """,
    )
    result = run(tmp_path, "--no-report", "--trace", "t.json", path)
    assert (result.returncode, result.stdout) == (0, "['aten::sin']\n")
    assert "starts its own torch.profiler" in own(result.stderr)
    found = names(tmp_path / "t.json")
    assert "aten::cos" in found and "aten::sin" not in found


@pytest.mark.usefixtures("torch_here")
def test_a_program_that_imports_torch_and_runs_nothing_has_no_results(tmp_path: Path) -> None:
    path = script(tmp_path, "import torch\n")
    result = run_with_report(tmp_path, path)
    assert result.returncode == 0 and "nothing was recorded: the program ran no op" in own(result.stderr)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["program.py"]


def test_outputs_choose_the_first_free_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import argparse

    monkeypatch.chdir(tmp_path)
    outputs = Outputs(argparse.Namespace(output=None, no_report=False, trace=None), "a.b")
    with pytest.raises(KeyboardInterrupt), outputs.report_to_write() as path:
        assert path == str(tmp_path / "a.b.report.html")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
