"""The command flopscope mcp in a process of its own: the protocol's versions, what it runs, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import DATA, ROOT
from helpers.mcp import process

FAULTS = DATA / "programs"
BEFORE = "pointwise_before.json.gz"
COMMAND = [sys.executable, "-m", "flopscope", "mcp"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_clients_with_and_without_a_handshake_are_served(mode: str) -> None:
    with process(FAULTS, mode=mode) as server:
        assert (server.client.protocol_version < "2026") == (mode == "legacy")
        assert server.client.server_info.name == "flopscope" and str(FAULTS) in server.client.instructions
        assert server.call("advice", path=BEFORE)["advice"]


def test_without_the_sdk_only_this_command_fails() -> None:
    code = (
        "import sys\nsys.modules['mcp'] = None\nfrom flopscope.cli.program import main\n"
        "assert main(['schema', 'opened']) == 0\nassert main(['mcp']) == 1\nmain(['--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0 and "mcp" in done.stdout
    assert done.stderr.startswith("flopscope mcp: ") and "pip install 'flopscope-profiler[mcp]'" in done.stderr


# Programs -------------------------------------------------------------------------------------------------------------


def wait_until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    assert condition()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.fixture
def sleeper(tmp_path: Path) -> Callable[[], int]:
    """Write a program that sleeps, and return a function that waits for it to run and returns its process id."""
    pid = tmp_path / "pid"
    text = f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    (tmp_path / "sleeps.py").write_text(text)

    def running() -> int:
        wait_until(lambda: pid.exists() and pid.read_text())
        return int(pid.read_text())

    return running


def test_a_cancelled_call_ends_its_program(tmp_path: Path, sleeper: Callable[[], int]) -> None:
    with process("--allow-try", tmp_path, FAULTS) as server:
        call = server.begin("try", script="sleeps.py", max_time=600)
        pid = sleeper()
        assert server.call("summary", path=BEFORE)["advice"]  # while the program runs
        call.cancel()
        wait_until(lambda: not is_running(pid))
        assert server.call("open", path=BEFORE)["trace"] and call.cancelled()


@pytest.mark.parametrize("how", ["closed", "terminated"])
def test_the_end_of_the_server_ends_the_program_of_a_call(tmp_path: Path, sleeper: Callable[[], int], how: str) -> None:
    call = (
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "try", "arguments": {"script": '
        b'"sleeps.py"}, "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", '
        b'"io.modelcontextprotocol/clientCapabilities": {}}}}\n'
    )
    with subprocess.Popen(
        [*COMMAND, "--allow-try", tmp_path], env=ENVIRONMENT, stdin=-1, stdout=subprocess.DEVNULL
    ) as server:
        assert server.stdin is not None
        server.stdin.write(call)
        server.stdin.flush()
        pid = sleeper()
        if how == "closed":
            server.stdin.close()
        else:
            server.terminate()
        assert server.wait(timeout=60) == (0 if how == "closed" else 143)
        wait_until(lambda: not is_running(pid))


def test_a_program_prints_nothing_into_the_protocol(tmp_path: Path) -> None:
    (tmp_path / "prints.py").write_text("import os\nprint('hello')\nos.write(1, b'raw\\n')\nraise SystemExit(3)\n")
    with process("--allow-try", tmp_path) as server:
        assert "status" in server.refused("try", script="prints.py", max_time=20)
        assert "is not a file" in server.refused("try", script=".")
        assert "less than or equal to 3600" in server.refused("try", script="prints.py", max_time=1e9)
        assert "there is no change 'thread'" in server.refused("try", script="prints.py", changes=["thread"])


def test_try_measures_a_program_and_says_how_long_it_has_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(
        "import torch\nm = torch.nn.Linear(64, 64)\no = torch.optim.SGD(m.parameters(), 1e-3)\n"
        "for i in range(40):\n    m(torch.randn(8, 64)).square().mean().backward()\n    o.step()\n    o.zero_grad()\n"
    )
    seen: list[tuple[float, float | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, total))

    with process("--allow-try", tmp_path) as server:
        content = server.call("try", progress=progress, script="train.py", changes=["threads"], max_time=40)
    assert content["title"] == "train.py" and content["runs"] >= 1 and content["seconds"] > 0
    assert seen and seen == sorted(seen) and {total for _, total in seen} == {40}


def test_a_client_that_has_gone_ends_the_server_quietly() -> None:
    call = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, str(FAULTS)], input=3 * call, env=ENVIRONMENT, stdout=writing, stderr=subprocess.PIPE, timeout=60
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
