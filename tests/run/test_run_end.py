"""flopscope run: what it does after the program depends on nothing that the program left behind."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.run_programs import OPS, done, environment, in_reporter, own, run, script, start_with_report, wait_for

LEFT = {
    "deleted search path": "import sys; del sys.path, sys.meta_path, sys.path_hooks; sys.argv = None",
    "mocks of modules": """
        import sys
        from unittest.mock import MagicMock
        sys.modules.update(gzip=MagicMock(), json=MagicMock(), socket=None)
        """,
    "an import that fails": """
        import builtins
        def fail(*_, **__): raise ImportError('no')
        builtins.__import__ = fail
        """,
    "no builtins": """
        import builtins
        for name in [*vars(builtins)]:
            if name.islower() and not name.startswith('_') and name != 'setattr': setattr(builtins, name, None)
        """,
    "small files and no memory": """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, -1))
        resource.setrlimit(resource.RLIMIT_AS, (1 << 20, -1))
        """,
    "a removed folder and no environment": """
        import os
        os.mkdir('below'); os.chdir('below'); os.rmdir('../below')
        os.environ.clear(); os.environ = None
        """,
    "closed streams and descriptors": """
        import os, sys
        sys.stdout.close(); sys.stderr.close(); os.closerange(3, 1000)
        sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = None
        """,
    "a trace function that raises": "import sys\ndef trace(*_): raise ValueError\nsys.settrace(trace)",
    "a timer": """
        import signal
        def late(*_): raise TimeoutError
        signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        import atexit; atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)
        """,
}
BESIDE = "csv datetime decimal gzip html jinja2 json logging markupsafe pickle platform queue resource secrets shutil"
BESIDE += " socket statistics string tempfile textwrap zipfile"


def run_all(folder: Path, path: Path) -> subprocess.CompletedProcess[str]:
    return run(folder, "--trace", "t.json.gz", "-o", "r.html", path)


def check_results(folder: Path, result: subprocess.CompletedProcess[str], name: str = "program.py") -> None:
    """Summary, trace and report are complete."""
    assert "edges" in result.stderr, result.stderr  # a row of the summary
    trace = json.loads(gzip.decompress((folder / "t.json.gz").read_bytes()))
    assert [event["name"] for event in trace["traceEvents"]].count("flopscope::neg") == 1
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert f"<title>{name}" in page and page.rstrip().endswith("</html>")


@pytest.mark.parametrize("name", LEFT)
def test_results_are_written_whatever_the_program_left(name: str, tmp_path: Path) -> None:
    code = script(tmp_path, LEFT[name], "left.py").read_text()
    result = run_all(tmp_path, script(tmp_path, OPS + code))
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    check_results(tmp_path, result)


def test_files_beside_the_script_are_the_programs_and_not_flopscopes(tmp_path: Path) -> None:
    """The program finds its own modules, as under Python, and flopscope those of Python's library."""
    names = BESIDE.split()
    for name in names:
        script(tmp_path, f"x = {name!r}\n", f"{name}.py")
    text = f"import {', '.join(names)}\nprint([m.x for m in ({', '.join(names)})])\n"
    more = "import atexit\natexit.register(lambda: print(__import__('json').x, __import__('gzip').x))\n"
    path = script(tmp_path, text + more)
    plain = done(tmp_path, [str(path)])
    assert plain.returncode == 0 and plain.stdout.count("json") == 2
    for launch in (["-m", "flopscope"], ["-c", "import sys; from flopscope.cli.program import main; sys.exit(main())"]):
        path.write_text(text + OPS + more)
        folder = tmp_path if launch[0] == "-m" else tmp_path.parent  # -c looks in the current folder, as Python does
        result = done(
            folder, [*launch, "run", "--trace", f"{tmp_path}/t.json.gz", "-o", f"{tmp_path}/r.html", str(path)]
        )
        assert (result.returncode, result.stdout) == (0, plain.stdout), result.stderr
        check_results(tmp_path, result)


def test_a_busy_daemon_thread_lets_go_of_the_interpreter_often_while_results_are_written(tmp_path: Path) -> None:
    """By default after 5 ms, for which each call of the system then waits, for as many threads as there are."""
    code = """
        import atexit, sys, threading
        def spin():
            while sys.getswitchinterval() > 1e-3: pass
            print('sooner', flush=True)
        threading.Thread(target=spin, daemon=True).start()
        atexit.register(lambda: print(sys.getswitchinterval()))
        """
    assert run(tmp_path, "--no-report", "--no-summary", script(tmp_path, code)).stdout == "sooner\n0.005\n"


def test_the_program_does_not_see_the_process_that_reports(tmp_path: Path) -> None:
    """Nor a descriptor that stays: the sampler has the state of a thread open for a moment."""
    code = """
        import os, signal
        try: os.wait()
        except ChildProcessError: print('no child')
        print(sorted(set.intersection(*(set(map(int, os.listdir('/proc/self/fd'))) for _ in range(9))))[:-1])
        os.killpg(0, signal.SIGCONT)
        """
    path = script(tmp_path, code)
    assert run(tmp_path, "--no-report", "--no-summary", path).stdout == done(tmp_path, [str(path)]).stdout


def test_each_result_is_attempted_and_a_failure_says_something(tmp_path: Path) -> None:
    fail = "from flopscope.results.results import Results\ndef fail(*_, **__): raise {}\nResults.{} = fail\n"
    path = script(tmp_path, OPS)
    for problem, method, kind, named in (
        ("MemoryError", "summary", "summary", "MemoryError"),
        ("SystemExit", "export_chrome_trace", "trace", "SystemExit"),
        ("KeyError(1)", "write_report", "report", "KeyError: 1"),
    ):
        for file in tmp_path.glob("[tr].*"):
            file.unlink()
        code = in_reporter(fail.format(problem, method))
        result = run(tmp_path, "--trace", "t.json.gz", "-o", "r.html", path, **code)
        assert f"there is no {kind}: {named}\n" in f"{own(result.stderr)}\n", result.stderr
        assert result.returncode == 0 and ("edges" in result.stderr) == (kind != "summary")
        assert (tmp_path / "t.json.gz").exists() == (kind != "trace")
        assert (tmp_path / "r.html").exists() == (kind != "report")


# Standard error -------------------------------------------------------------------------------------------------------


def test_results_are_written_if_nobody_reads_what_is_printed(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    path = str(script(tmp_path, OPS))
    command = [sys.executable, "-m", "flopscope", "run", "-o", "a.html", "--json", "a.json", path]
    subprocess.run(command, cwd=tmp_path, env=environment(), stdout=writing, stderr=writing, check=False)
    os.close(writing)
    assert (tmp_path / "a.html").stat().st_size > 0 and json.loads((tmp_path / "a.json").read_text())


def test_messages_go_to_the_standard_error_of_the_start(tmp_path: Path) -> None:
    """Not into a file that has got its descriptor, nor into one that has got another's."""
    for code in (
        "import os; f = os.open('file', os.O_RDWR | os.O_CREAT); os.dup2(f, 2)",
        "import os; os.closerange(2, 1000)\nfor _ in range(300): os.open('file', os.O_RDWR | os.O_CREAT)",
    ):
        result = run_all(tmp_path, script(tmp_path, OPS + code))
        assert result.returncode == 0 and (tmp_path / "file").read_bytes() == b"" and "report: " in result.stderr


def test_the_standard_error_is_not_kept_open_by_others(tmp_path: Path) -> None:
    """A process that the program leaves behind with closed streams keeps no pipe of flopscope's open."""
    code = """
        import os, subprocess, time
        if os.fork() == 0:
            os.close(0); os.close(1); os.close(2)
            time.sleep(40); os._exit(0)
        null = subprocess.DEVNULL
        subprocess.Popen(['sleep', '40'], stdin=null, stdout=null, stderr=null, close_fds=False)
        print(os.open('file', os.O_RDWR | os.O_CREAT))
        """
    began = time.monotonic()
    result = run(tmp_path, "--no-report", "--no-summary", "--no-samples", script(tmp_path, code))
    assert time.monotonic() - began < 30
    assert result.stdout == "3\n", "descriptors are numbered as under Python"


# Signals --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["TERM", "HUP", "INT"])
def test_a_signal_to_process_and_group_is_one(number: str, tmp_path: Path) -> None:
    path = script(tmp_path, OPS + "import time\ntime.sleep(60)\n")
    options = ["--trace", "t.json.gz", "-o", "r.html"]
    command = ["timeout", "-s", number, "8", sys.executable, "-m", "flopscope", "run", *options, str(path)]
    result = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=110)
    assert "incomplete" not in result.stderr
    check_results(tmp_path, result)


@pytest.mark.parametrize("called", ["sys.settrace", "signal.getsignal"])
def test_a_copy_of_ctrl_c_is_ignored_from_the_start(called: str, tmp_path: Path) -> None:
    """Called: a function that is called between the end of the program and the arrangement to ignore copies."""
    code = f"""
        import os, signal, sys, time
        original = {called}
        def interrupted(argument):
            {called} = original
            os.kill(os.getpid(), 2)
            return original(argument)
        {called} = interrupted
        os.kill(os.getpid(), 2)
        time.sleep(60)
        """
    result = run_all(tmp_path, script(tmp_path, OPS + script(tmp_path, code, "code.py").read_text()))
    assert result.returncode == -signal.SIGINT and "incomplete" not in result.stderr
    assert result.stderr.count("KeyboardInterrupt") == 1 and "code.py" not in result.stderr
    check_results(tmp_path, result)


def test_signals_are_for_the_threads_of_the_program(tmp_path: Path) -> None:
    """One that another thread receives does not wake time.sleep() in the main thread, where Python handles it."""
    code = """
        import os, signal, threading
        for thread in sorted(threading.enumerate(), key=lambda thread: thread.name):
            if thread.name.startswith("flopscope"):
                status = open(f"/proc/self/task/{thread.native_id}/status").read()
                blocked = int(status.split("SigBlk:")[1].split()[0], 16)
                print(thread.name, [blocked >> number - 1 & 1 for number in (1, 2, 15, 14, 11)])
        print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        """
    result = run(tmp_path, "--seconds", "0:50", script(tmp_path, code))
    names = ("flopscope-memory", "flopscope-window")
    assert result.stdout.splitlines() == [*(f"{name} [1, 1, 1, 1, 0]" for name in names), "set()"], result.stderr


def test_a_signal_while_results_are_written_ends_the_process_after_them(tmp_path: Path) -> None:
    with start_with_report(tmp_path, script(tmp_path, OPS), SLOW_REPORT="2") as process:
        wait_for(tmp_path / "program.report.begun")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert (tmp_path / "program.report.html").read_text() == "report of 2 events"
