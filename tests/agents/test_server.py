"""The command flopscope mcp in a process of its own: the protocol's versions, what it runs, and how it ends."""

import os
import subprocess
import sys

import pytest
from helpers import DATA
from helpers.mcp import process
from helpers.processes import ended, environment

FAULTS = DATA / "programs"
BEFORE = "pointwise_before.json.gz"
COMMAND = [sys.executable, "-m", "flopscope", "mcp"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_clients_with_and_without_a_handshake_are_served(mode: str) -> None:
    with process(FAULTS, mode=mode) as server:
        assert (server.client.protocol_version < "2026") == (mode == "legacy")
        assert server.client.server_info.name == "flopscope" and str(FAULTS) in server.client.instructions
        assert server.call("advice", path=BEFORE)["advice"]


def test_without_the_sdk_only_this_command_fails() -> None:
    done = ended(
        "import sys\nsys.modules['mcp'] = None\nfrom flopscope.cli.program import main\n"
        "assert main(['schema', 'opened']) == 0\nassert main(['mcp']) == 1\nmain(['--help'])"
    )
    assert done.returncode == 0 and "mcp" in done.stdout
    assert done.stderr.startswith("flopscope mcp: ") and "pip install 'flopscope-profiler[mcp]'" in done.stderr


def test_a_client_that_has_gone_ends_the_server_quietly() -> None:
    call = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    reading, writing = os.pipe()
    os.close(reading)
    given = {"input": 3 * call, "env": environment(), "timeout": 60}
    done = subprocess.run([*COMMAND, str(FAULTS)], stdout=writing, stderr=subprocess.PIPE, **given)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
