"""The memory that a recording takes: what is left of it, what it gives back, and where it ends."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.run_programs import own, run, script

import flopscope as fs
from flopscope._core import SteadyGrowth
from flopscope.cli.recording import SURELY
from flopscope.record import windows
from flopscope.record.windows import Records
from flopscope.support.process import available_memory, private_growth

GB = 1 << 30


def system(folder: Path, files: dict[str, str]) -> tuple[str, str]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return str(folder / "proc"), str(folder / "groups")


def test_the_least_of_the_machine_and_its_groups_is_available(tmp_path: Path) -> None:
    machine = {"proc/meminfo": f"MemTotal: 99 kB\nMemAvailable:  {8 * GB >> 10} kB\n"}
    assert available_memory(*system(tmp_path / "none", {})) is None
    assert available_memory(*system(tmp_path / "machine", machine)) == 8 * GB
    version_2 = {
        "proc/self/cgroup": "0::/pod/box\n", "groups/pod/memory.max": f"{6 * GB}\n",
        "groups/pod/memory.current": f"{3 * GB}\n", "groups/pod/memory.stat": f"anon 5\ninactive_file {GB}\nfile 7\n",
        "groups/pod/box/memory.max": "max\n", "groups/pod/box/memory.current": f"{3 * GB}\n",
    }  # fmt: skip
    assert available_memory(*system(tmp_path / "two", machine | version_2)) == 4 * GB


class Growing:
    """A profile that has recorded so much."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    @property
    def _core(self) -> "Growing":
        return self


def test_a_recording_ends_where_its_end_would_take_half_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "available_memory", lambda: 8 * GB)
    monkeypatch.setattr(windows, "profile", Growing)
    records = Records(Growing(700 << 20), 1.0)
    assert not records.look() and records.nbytes == 3 * (700 << 20), "as torch's, of as many launches"
    records._prof.nbytes = 900 << 20
    assert "about 4.39 GB of memory at its end, more than half of the 8.00 GB" in records.look()
    monkeypatch.setattr(windows, "available_memory", lambda: None)
    assert not Records(Growing(900 << 20), 1.0).look(), "the system does not say"


def grown(size: Callable[[float], float], seconds: float) -> list[float]:
    """Return what SteadyGrowth makes of a process of that size after each 0.3 s."""
    now = 0.0
    growth, found = SteadyGrowth(SURELY), []
    growth.look(now, size(now))
    while now < seconds:
        now += 0.3
        found.append(growth.look(now, size(now)))
    return found


@pytest.mark.parametrize("seconds", [20, 60, 2000])
def test_records_grow_steadily(seconds: int) -> None:
    found = grown(lambda t: 100 + 5 * t + 3 * (t % 0.6 < 0.3), seconds)  # with tensors that come and go
    assert found[-1] == pytest.approx(5 * seconds, rel=0.25) and not any(found[: int(SURELY / 0.3) - 1])


def test_data_of_a_program_is_no_record() -> None:
    loaded = grown(lambda t: 100 + 50 * min(t, 9), 60)
    assert not any(loaded[int(20 / 0.3) :])  # while it was loaded, it was as steady as records are
    assert max(grown(lambda t: 100 + 200 * (t > 20) + 200 * (t > 30), 60)) == 0
    assert max(grown(lambda t: 100 - t, 60)) == 0
    assert grown(lambda t: 100 + 50 * min(t, 9) + 2 * t, 90)[-1] == pytest.approx(180, rel=0.1)


def test_what_is_read_or_mapped_is_not_growth(tmp_path: Path) -> None:
    def size(pages: str, read: str = "") -> float:
        (tmp_path / "statm").write_text(pages)
        (tmp_path / "io").write_text(read)
        return private_growth(str(tmp_path))

    page = os.sysconf("SC_PAGE_SIZE")
    before = size("900 500 100 1 0 400 0", "rchar: 7\nwchar: 8\n")
    assert size("900 600 100 1 0 400 0", "rchar: 7\nwchar: 8\n") - before == 100 * page
    assert size("900 600 100 1 0 400 0", f"rchar: {7 + 100 * page}\n") == before  # read
    assert size("900 700 200 1 0 400 0", "rchar: 7\n") == before  # mapped and copied
    assert private_growth(str(tmp_path / "none")) == 0
    start, block = private_growth(), bytearray(64 << 20)
    assert private_growth() - start == pytest.approx(len(block), rel=0.2)


def run_with(tmp_path: Path, available: int, code: str, *options: str) -> tuple[str, int, int]:
    """Record a program with that much memory: its messages, its recorded events, and the ops that it counted."""
    limited = f"import flopscope.record.windows as limit\nlimit.available_memory = lambda: {available}\n"
    (tmp_path / "sitecustomize.py").write_text(limited, encoding="utf-8")
    paths = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    options = (*options, "--no-report", "--no-summary", "--trace", "t.json.gz")
    result = run(tmp_path, *options, script(tmp_path, code), PYTHONPATH=paths)
    assert result.returncode == 0, result.stderr
    return own(result.stderr), len(fs.load_trace(str(tmp_path / "t.json.gz"))), int(result.stdout)


def test_a_recording_ends_before_it_takes_the_programs_memory(tmp_path: Path) -> None:
    """The program counts its own ops; those until the limit are in the trace, and it goes on to its end."""
    code = """
        import time
        import flopscope as fs
        x = fs.ones((2,), device="cpu")
        end, count = time.monotonic() + 60, 0
        while count < 4_000_000 and time.monotonic() < end:
            fs.neg(x)
            count += 1
        print(count)
        """
    messages, recorded, counted = run_with(tmp_path, 400 << 20, code, "--whole")
    assert re.search(r"more than half of the 400\.00 MB.*: this recording ends here", messages)
    bytes_of_event = 56
    assert recorded * bytes_of_event > 24 << 20 and recorded < counted


def test_a_recording_of_torch_ends_before_it_takes_the_programs_memory(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = """
        import threading, time
        import torch
        x = torch.ones(4)
        end, count = time.monotonic() + 90, 0
        while time.monotonic() < end and any(one.name == "flopscope-memory" for one in threading.enumerate()):
            torch.neg(x)
            count += 1
        print(count)
        """
    messages, recorded, counted = run_with(tmp_path, 1 << 30, code, "--whole")
    assert re.search(r"would take about .* at its end, by the growth of this process, more than half", messages)
    assert 20_000 < recorded < counted


def test_torchs_results_are_released_before_the_program_ends(tmp_path: Path) -> None:
    """torch's own results are over 2,500 bytes an op; what is left is measured after the program, at its exit."""
    pytest.importorskip("torch")
    code = """
        import re
        import atexit
        import torch
        x = torch.ones(4)
        def show(): print(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1])
        atexit.register(show)
        for _ in range({}): torch.neg(x)
        show()
        """
    kept = []
    for count in (2_000, 42_000):
        path = script(tmp_path, code.format(count))
        result = run(tmp_path, "--no-report", "--no-summary", path)
        kept.append([int(number) << 10 for number in result.stdout.split()])
    per_op = (kept[1][1] - kept[0][1]) / 40_000
    assert per_op < 1000, kept
