"""flopscope run: the program runs as under python, and ends as it does."""

import re
import textwrap
import zipfile
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from helpers.run_programs import OPS, done, others, own, run, script

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
    "exit 2**70": "raise SystemExit(2**70)",
    "exit text without stderr": "import sys; sys.stderr = None; sys.exit('a reason')",
    "trace that raises": "import sys\ndef trace(*_): raise ValueError\nsys.settrace(trace); sys.exit(3)",
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


# Those whose behaviour depends on where the program is, and more of them.
AS_TEXT = """
    returns, arguments, names of main, standard input, exit 3, exit text, exception, chained exception, syntax error,
    warning, pickle, fork, thread, executor left running, interrupted, raises KeyboardInterrupt, SIGTERM, os._exit,
    names of code, future, spawned process, indented, later error, line of a warning
"""
RUN = ["-m", "flopscope", "run", "--no-report", "--no-summary"]
TEXTS = PROGRAMS | {
    "names of code": "import sys; print(sys.argv, repr(sys.path[0]), sorted(globals()), __loader__, __spec__, __doc__)",
    "future": "from __future__ import annotations\ndef f(x: absent): pass\nprint(f.__annotations__)",
    "spawned process": """
        import multiprocessing, sys
        def work(): print('in the child')
        if __name__ == '__main__':
            process = multiprocessing.get_context('spawn').Process(target=work)
            process.start(); process.join()
            print(process.exitcode)
        """,
    "indented": "if True:\n    print(1)\n\n    print(2)\n  # less\nprint(3)",
    "later error": "print('é', flush=True)\n\n\ndef f(*x):\n    return x.absent\n\n\nf(1,\n  2)",
    "line of a warning": "import warnings\n\nwarnings.warn('here')  # a line that may be shown",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_as_under_python(name: str, tmp_path: Path) -> None:
    results = []
    for command in (["program.py"], [*RUN, "program.py"]):
        folder = tmp_path / "same"  # the paths in tracebacks are equal
        folder.mkdir()
        (folder / "program.py").write_bytes(textwrap.dedent(PROGRAMS[name]).encode("latin-1"))
        results.append(done(folder, [*command, "a", "--flag", "--", "-o", "x"], "some text\n"))
        folder.rename(tmp_path / f"before{len(results)}")
    assert_same(*results)


@pytest.mark.grid(5)  # the same programs run whole as files
@pytest.mark.parametrize("name", re.split(r",\s+", AS_TEXT.strip()))
@pytest.mark.parametrize("option", ["-c", "-"])
def test_code_and_standard_input_run_as_under_python(option: str, name: str, tmp_path: Path) -> None:
    text = textwrap.dedent(TEXTS[name])
    target, given = ([option, text], "some text\n") if option == "-c" else ([option], text)
    plain, profiled = (done(tmp_path, [*way, *target, "a", "--flag", "--", "-o", "x"], given) for way in ([], RUN))
    assert plain.stdout or plain.returncode or plain.stderr, "the program does something"
    assert_same(plain, profiled)


def assert_same(plain: CompletedProcess[str], profiled: CompletedProcess[str]) -> None:
    assert (profiled.returncode, profiled.stdout) == (plain.returncode, plain.stdout)
    assert others(profiled.stderr) == plain.stderr
    said = own(profiled.stderr)  # a short program may end before its stack is sampled
    assert said == "" or said.startswith("flopscope run: nothing was recorded: the program ran no op")


@pytest.mark.parametrize("option", ["-c", "-"])
def test_the_results_of_code_and_of_standard_input_have_names(option: str, tmp_path: Path) -> None:
    target, given = ([option, OPS], "") if option == "-c" else ([option], OPS)
    name = {"-c": "command", "-": "stdin"}[option]
    for number in ("", "-2"):
        result = run(tmp_path, "--no-summary", *target, "a secret", text=given)
        page = tmp_path / f"{name}.report{number}.html"
        assert own(result.stderr).endswith(f"flopscope run: report: {page}")  # after what is said of measuring peaks
        text = page.read_text(encoding="utf-8")
        assert f"<title>python {option}" in text and "a secret" not in text


def test_a_module_a_folder_and_an_archive_run_as_under_python(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    text = "import sys; print(sys.argv, __name__, __file__, sys.path[0], __spec__ and __spec__.name, __package__); 1/0"
    for name in ("__main__.py", "part.py"):
        script(package, text, name)
    with zipfile.ZipFile(tmp_path / "archive.pyz", "w") as archive:
        archive.write(package / "part.py", "__main__.py")
    cases = ["-m package -m --x", "-m package.part", "package 1", "archive.pyz", "-m absent", "./package/part.py"]
    for case in map(str.split, [*cases, "-m package.absent"]):
        plain, profiled = done(tmp_path, case), done(tmp_path, [*RUN, *case])
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
def test_wrong_options_run_nothing(options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
