"""The memory that a recording takes: what is left of it, what it gives back, and where it ends."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from run_programs import own, run, script

import flopscope as fs
from flopscope.sources import memory_limit
from flopscope.sources.memory_limit import MemoryLimit
from flopscope.support.memory import available_memory

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
        "proc/self/cgroup": "0::/pod/box\n",
        "groups/pod/memory.max": f"{6 * GB}\n",
        "groups/pod/memory.current": f"{3 * GB}\n",
        "groups/pod/memory.stat": f"anon 5\ninactive_file {GB}\nfile 7\n",
        "groups/pod/box/memory.max": "max\n",
        "groups/pod/box/memory.current": f"{3 * GB}\n",
    }
    assert available_memory(*system(tmp_path / "two", machine | version_2)) == 4 * GB
    version_1 = {
        "proc/self/cgroup": "3:cpu:/\n4:cpuacct,memory:/host/name\n",  # of the host: the container sees the root
        "groups/memory/memory.limit_in_bytes": f"{2 * GB}\n",
        "groups/memory/memory.usage_in_bytes": f"{3 * GB}\n",
    }
    assert available_memory(*system(tmp_path / "one", machine | version_1)) == 0
    version_1["groups/memory/memory.limit_in_bytes"] = "9223372036854771712\n"  # none
    assert available_memory(*system(tmp_path / "free", machine | version_1)) == 8 * GB


def test_a_quarter_warns_and_half_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "available_memory", lambda: 8 * GB)
    said: list[str] = []
    sizes = iter([1.9, 2.0, 3.9, 4.0, 9.0])
    limit = MemoryLimit(lambda: next(sizes) * GB, lambda text: said.append(f"W {text}"), lambda text: said.append("S"))
    seen = []
    for _ in range(5):
        limit.look()
        seen.append(len(said))
    assert seen == [0, 1, 1, 2, 2] and said[1] == "S"
    assert "about 2.00 GB" in said[0] and "a quarter of the 8.00 GB" in said[0]


LIMITED = """
import flopscope.sources.memory_limit as limit
limit.available_memory = lambda: {available}
"""


def test_a_recording_ends_before_it_takes_the_programs_memory(tmp_path: Path) -> None:
    """The program counts its own ops; those until the limit are in the trace, and it goes on to its end."""
    (tmp_path / "sitecustomize.py").write_text(LIMITED.format(available=400 << 20), encoding="utf-8")
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
    path = script(tmp_path, code)
    result = run(
        tmp_path,
        "--no-report",
        "--no-summary",
        "--trace",
        "t.json.gz",
        path,
        PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    )
    assert result.returncode == 0, result.stderr
    assert re.search(r"more than a quarter of the 400\.00 MB.*; at half of it, the recording ends", own(result.stderr))
    assert re.search(r"more than half of the 400\.00 MB.*: this recording ends here", own(result.stderr))
    recorded = len(fs.load_trace(str(tmp_path / "t.json.gz")))
    bytes_of_event = 56
    assert recorded * bytes_of_event > 24 << 20 and recorded < int(result.stdout)


def test_torchs_results_are_released_before_they_are_read(tmp_path: Path) -> None:
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
    for count in (2_000, 102_000):
        path = script(tmp_path, code.format(count))
        result = run(tmp_path, "--no-report", "--no-summary", path)
        kept.append([int(number) << 10 for number in result.stdout.split()])
    per_op = (kept[1][1] - kept[0][1]) / 100_000
    assert per_op < 1000, kept
