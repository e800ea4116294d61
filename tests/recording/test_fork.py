"""A process that forks while it profiles: the child takes no part in the profile, and neither process hangs."""

import textwrap
from pathlib import Path

import pytest
from helpers.processes import ended, environment

import flopscope as fs

BEGIN = """
    import os, sys, threading
    import flopscope as fs

    fs.set_default_device("cpu")
    x = fs.ones((8, 8))

    def names(prof):
        return {row.key: row.count for row in prof.key_averages(peaks="none")}

    def status_of(pid):
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def run(program: str) -> None:
    code = textwrap.dedent(BEGIN) + textwrap.dedent(program)
    done = ended(code, env=environment(PYTHONWARNINGS="ignore::DeprecationWarning"), timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


@pytest.mark.parametrize("leave", ["os._exit(0)", "sys.exit(0)", "pass"])
def test_a_child_leaves_the_block_without_results(leave: str) -> None:
    run(f"""
        handed_over = []
        part = fs.record_function("part")
        with fs.profile(on_trace_ready=handed_over.append) as prof:
            part.__enter__()
            fs.sin(x)
            pid = os.fork()
            if pid == 0:
                part.__exit__(None, None, None)
                fs.sin(x)
                with fs.record_function("child"):
                    fs.cos(x)
                prof.step()
                {leave}
            else:
                status = status_of(pid)
                part.__exit__(None, None, None)
                fs.exp(x)
        if pid == 0:
            prof.stop()
            assert handed_over == [] and len(prof) == 0 and "forked" in repr(prof)
            try:
                prof.key_averages()
            except RuntimeError as problem:
                assert "child of a fork" in str(problem)
                sys.exit(0)
            sys.exit("no error")
        assert status == 0
        assert handed_over == [prof]
        assert names(prof) == {{"part": 1, "flopscope::sin": 1, "flopscope::exp": 1}}
    """)


def test_workers_of_multiprocessing() -> None:
    run("""
        import multiprocessing

        def work(n):
            with fs.record_function("worker"):
                return float(fs.sum(fs.full((n,), 1.0)).item())

        with fs.profile() as prof:
            with multiprocessing.get_context("fork").Pool(2) as pool:
                assert pool.map(work, [1, 2, 3]) == [1.0, 2.0, 3.0]
            fs.sin(x)
        assert names(prof) == {"flopscope::sin": 1}
    """)


def test_a_process_can_fork_while_its_threads_work() -> None:
    run("""
        done = threading.Event()

        def work():
            while not done.is_set():
                with fs.record_function("work"):
                    fs.sin(x)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(20):
                with fs.profile(profile_memory=True) as prof:
                    pid = os.fork()
                    if pid == 0:
                        fs.cos(x)
                if pid == 0:
                    with fs.profile() as mine:
                        fs.exp(x)
                    os._exit(0 if names(mine) == {"flopscope::exp": 1} else 3)
                assert status_of(pid) == 0
                assert "flopscope::cos" not in names(prof)
        finally:
            done.set()
    """)


def test_a_fork_waits_while_a_thread_imports_a_decompressor(tmp_path: Path) -> None:
    """The import takes a second."""
    with fs.profile() as prof:
        fs.ones(())
    prof.export_chrome_trace(tmp_path / "trace.json.gz")
    (tmp_path / "isal").mkdir()
    (tmp_path / "isal" / "__init__.py").write_text("")
    slow = "import sys, time\nprint('importing', flush=True)\ntime.sleep(1)\nfrom zlib import decompressobj, error\n"
    (tmp_path / "isal" / "isal_zlib.py").write_text(slow)
    run(f"""
        import signal, time

        sys.path.insert(0, {str(tmp_path)!r})
        path = {str(tmp_path / "trace.json.gz")!r}
        thread = threading.Thread(target=fs.load_trace, args=(path,))
        thread.start()
        while "isal.isal_zlib" not in sys.modules:
            time.sleep(0.01)
        pid = os.fork()
        if pid == 0:
            signal.alarm(10)
            os._exit(0 if len(fs.load_trace(path)) else 3)
        assert status_of(pid) == 0
        thread.join()
    """)
