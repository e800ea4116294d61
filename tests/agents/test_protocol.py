"""The protocol of flopscope mcp: versions, errors, limits, cancellation; and that no request ends the server."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT
from helpers.mcp import INITIALIZE, Client, client

from flopscope.cli.server import messages, server, tool

FAULTS = ROOT / "benchmarks" / "results" / "nvidia-h200" / "faults"
BEFORE = "pointwise_before.json.gz"
LATEST = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


@pytest.fixture(scope="module")
def one() -> Iterator[Client]:
    with client(str(FAULTS)) as found:
        yield found


def error_of(one: Client, content: Any) -> tuple[int, Any, str]:
    """Send a line, and return the code, the id and the message of the error that answers it."""
    one.send(content)
    response = one.receive()
    return response["error"]["code"], response["id"], response["error"]["message"]


# Versions -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wanted, offered",
    [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2024-11-05"),  # which asks for batches
        ("2024-11-05", "2024-11-05"),
        ("2099-01-01", "2025-11-25"),
        ("1999-01-01", "2024-11-05"),
    ],
)
def test_a_version_is_agreed_on(one: Client, wanted: str, offered: str) -> None:
    result = one.ask("initialize", {**INITIALIZE, "protocolVersion": wanted})["result"]
    assert result["protocolVersion"] == offered and result["serverInfo"]["name"] == "flopscope"
    assert "tools" in result["capabilities"] and str(FAULTS) in result["instructions"]


def test_clients_without_a_handshake_are_served(one: Client) -> None:
    found = one.ask("server/discover", {"_meta": LATEST})["result"]
    assert found["resultType"] == "complete" and found["supportedVersions"][0] == "2026-07-28"
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "flopscope"
    tools = one.ask("tools/list", {"_meta": LATEST})["result"]
    assert tools["ttlMs"] > 0 and tools["cacheScope"] == "private"
    call = {"name": "open", "arguments": {}, "_meta": LATEST}
    assert one.ask("tools/call", call)["result"]["resultType"] == "complete"
    assert "resultType" not in one.ask("tools/list")["result"]
    assert one.ask("ping", {"_meta": LATEST})["error"]["code"] == -32601  # which this version does not have


def test_an_unknown_version_of_a_request_is_refused_with_those_that_are_known(one: Client) -> None:
    meta = {**LATEST, "io.modelcontextprotocol/protocolVersion": "1900-01-01"}
    for method in ("tools/list", "tools/call", "server/discover"):
        error = one.ask(method, {"_meta": meta})["error"]
        assert error["code"] == -32022 and error["data"]["requested"] == "1900-01-01"
        assert {"2026-07-28", "2025-11-25"} <= {*error["data"]["supported"]}
    only_version = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    assert one.ask("tools/list", {"_meta": only_version})["error"]["code"] == -32602


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, code",
    [
        (b"not json", -32700),
        (b"\xff\xfe{}", -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": NaN}}', -32700),
        (b"[" * 100_000, -32700),
        (b'{"jsonrpc": "2.0", "id": ' + b"9" * 10_000 + b', "method": "ping"}', -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600),
        (b"7", -32600),
        (b"null", -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', -32600),
    ],
)
def test_what_is_no_request_is_refused_without_an_id(one: Client, line: bytes, code: int) -> None:
    assert error_of(one, line)[:2] == (code, None)
    assert one.ask("ping")["result"] == {}


@pytest.mark.parametrize(
    "request_, code",
    [
        ({"method": "ping"}, -32600),
        ({"jsonrpc": "1.0", "method": "ping"}, -32600),
        ({"jsonrpc": "2.0", "method": 7}, -32600),
        ({"jsonrpc": "2.0"}, -32600),
        ({"jsonrpc": "2.0", "method": "pong"}, -32601),
        ({"jsonrpc": "2.0", "method": "resources/list"}, -32601),
        ({"jsonrpc": "2.0", "method": "ping", "params": [1]}, -32602),
        ({"jsonrpc": "2.0", "method": "initialize"}, -32602),
        ({"jsonrpc": "2.0", "method": "tools/list", "params": {"cursor": "x"}}, -32602),
        ({"jsonrpc": "2.0", "method": "tools/list", "params": {"_meta": 7}}, -32602),
        ({"jsonrpc": "2.0", "method": "tools/call"}, -32602),
        ({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": 1}}, -32602),
        ({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "opne"}}, -32602),
        ({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "open", "arguments": []}}, -32602),
    ],
)
def test_a_wrong_request_is_refused_with_its_id(one: Client, request_: dict[str, Any], code: int) -> None:
    assert error_of(one, {"id": "seven", **request_})[:2] == (code, "seven")


def test_a_misspelt_tool_or_method_is_suggested(one: Client) -> None:
    assert "did you mean 'open'" in one.ask("tools/call", {"name": "opne"})["error"]["message"]
    assert "did you mean 'tools/list'" in one.ask("tool/list")["error"]["message"]


@pytest.mark.parametrize(
    "tool_, arguments, said",
    [
        ("open", {"path": 7}, "path must be a text"),
        ("open", {"path": "x" * 5000}, "at most 4096"),
        ("open", {"path": "a\0b"}, "path must be a text"),
        ("open", {"path": "none.json"}, "there is no 'none.json'"),
        ("open", {"path": "pointwise_befor.json.gz"}, "did you mean 'pointwise_before.json.gz'"),
        ("open", {"path": "pairs.json"}, "not a trace"),
        ("open", {"pth": "x"}, "did you mean 'path'"),
        ("summary", {}, "the argument path is required"),
        ("summary", {"path": "."}, "is a folder"),
        ("summary", {"path": BEFORE, "budget": 10}, "at least 50"),
        ("summary", {"path": BEFORE, "budget": True}, "must be a whole number"),
        ("rows", {"path": BEFORE, "top": 0}, "at least 1"),
        ("rows", {"path": BEFORE, "kind": "opp"}, "did you mean 'op'"),
        ("rows", {"path": BEFORE, "group_by": "shap"}, "did you mean 'shape'"),
        ("rows", {"path": BEFORE, "group_by": "module"}, "no modules are recorded"),
        ("rows", {"path": BEFORE, "sort_by": "flopps"}, "cannot sort by"),
        ("explain", {"path": BEFORE}, "name one of row and event"),
        ("explain", {"path": BEFORE, "row": "a", "event": 1}, "name one of row and event"),
        ("explain", {"path": BEFORE, "row": "aten::mn"}, "no row"),
        ("explain", {"path": BEFORE, "event": 10**9}, "there is no event"),
        ("what_if", {"path": BEFORE, "rules": ["fusee"]}, "fuse"),
        ("what_if", {"path": BEFORE, "device": "NVIDIA H2000"}, "H2000"),
        ("what_if", {"path": BEFORE, "peaks": {"memory": "much"}}, "object of numbers"),
        ("compare", {"a": BEFORE, "b": "none"}, "there is no 'none'"),
        ("ranks", {"paths": []}, "at least one file"),
        ("accounting", {"path": BEFORE, "steps": ["x"]}, "there is no step"),
        ("accounting", {"path": BEFORE, "begin_us": 0, "end_us": 10**400}, "end_us must be a number"),
        ("accounting", {"path": BEFORE, "begin_us": 0, "end_us": 1e308}, "lies in the recording, from 0 to"),
    ],
)
def test_a_wrong_argument_is_a_result_that_says_what_to_do(
    one: Client, tool_: str, arguments: dict[str, Any], said: str
) -> None:
    assert said in one.refused(tool_, **arguments)


def test_notifications_and_responses_are_not_answered(one: Client) -> None:
    for content in (
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/none", "params": {}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 12345}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {}}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled"},
        {"jsonrpc": "2.0", "id": 3, "result": {}},
        b"",
        b"   ",
    ):
        one.send(content)
    assert one.ask("ping")["result"] == {}


# Limits ---------------------------------------------------------------------------------------------------------------


def test_a_request_that_is_too_long_is_refused_and_the_next_is_answered(one: Client) -> None:
    code, number, said = error_of(one, b'{"x": "' + b"x" * messages.LONGEST + b'"}')
    assert (code, number) == (-32600, None) and "1,048,576 bytes" in said
    assert one.ask("ping")["result"] == {}
    longest = b'{"jsonrpc": "2.0", "id": 5, "method": "ping", "params": {"x": "%s"}}'
    one.send(longest % (b"x" * (messages.LONGEST - len(longest) - 1)))
    assert one.receive()["id"] == 5


def test_a_result_that_is_too_large_says_how_to_ask_for_less(one: Client) -> None:
    said = one.refused("rows", path="vocab_before.json.gz", top=200, kind="all")
    assert f"at most {tool.LARGEST:,} are sent" in said and "top or filter" in said
    assert not one.call("rows", path="vocab_before.json.gz", top=20, kind="all")["isError"]


def test_nested_parameters_are_refused(one: Client) -> None:
    deep: Any = {}
    for _ in range(200):
        deep = {"x": deep}
    assert error_of(one, {"jsonrpc": "2.0", "id": 9, "method": "ping", "params": deep})[:2] == (-32602, 9)


# Calls at once, cancellation, the end ---------------------------------------------------------------------------------


def wait_until(condition: Any, seconds: float = 30.0) -> None:
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


SLEEPS = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"


def test_a_cancelled_call_ends_its_program_and_is_not_answered(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    shutil.copy(FAULTS / BEFORE, tmp_path)
    with client("--allow-try", str(tmp_path), cwd=tmp_path) as one:
        number = one.begin("tools/call", {"name": "try", "arguments": {"script": "sleeps.py", "max_time": 600}})
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        pid = int((tmp_path / "pid").read_text())
        assert one.ask("ping")["result"] == {}  # while the call runs
        assert not one.call("summary", path=BEFORE)["isError"]
        again = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "open", "arguments": {}}}
        assert error_of(one, again)[0] == -32600
        one.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        wait_until(lambda: not is_running(pid))
        assert one.ask("ping")["result"] == {}
        with pytest.raises(queue.Empty):
            one.receive(seconds=0.5)
        assert not one.call("open")["isError"]


@pytest.mark.parametrize("how", ["closed", "terminated"])
def test_the_end_of_the_server_ends_the_program_of_a_call(tmp_path: Path, how: str) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    with client("--allow-try", str(tmp_path), cwd=tmp_path) as one:
        one.begin("tools/call", {"name": "try", "arguments": {"script": "sleeps.py", "max_time": 600}})
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        pid = int((tmp_path / "pid").read_text())
        if how == "closed":
            status, _ = one.end()
        else:
            one.process.terminate()
            status = one.process.wait(timeout=60)
        assert status == (0 if how == "closed" else 143)
        wait_until(lambda: not is_running(pid))


def test_many_calls_are_answered_each_with_its_id(one: Client) -> None:
    numbers = [one.begin("tools/call", {"name": "open", "arguments": {"path": BEFORE}}) for _ in range(20)]
    found = {response["id"]: response["result"]["structuredContent"] for response in (one.receive() for _ in numbers)}
    assert {*found} == {*numbers} and len({json.dumps(one) for one in found.values()}) == 1


def test_more_calls_than_may_wait_are_refused() -> None:
    with client(str(FAULTS)) as one:
        count = server.MOST_WAITING + 200
        numbers = [one.begin("tools/call", {"name": "advice", "arguments": {"path": "vocab_before.json.gz"}})
                   for _ in range(count)]  # fmt: skip
        responses = [one.receive() for _ in range(count)]
        refused = [response for response in responses if "error" in response]
        assert {response["id"] for response in responses} == {*numbers} and refused
        assert {response["error"]["code"] for response in refused} == {-32603}
        assert one.ask("ping")["result"] == {}


def test_piped_requests_are_answered_before_the_end() -> None:
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "advice", "arguments": {"path": BEFORE}},
    }
    done = subprocess.run(
        [sys.executable, "-m", "flopscope", "mcp", str(FAULTS)], input=json.dumps(call).encode() + b"\n",
        capture_output=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == b""
    assert json.loads(done.stdout)["result"]["structuredContent"]["format"] == "flopscope.advice"


def test_a_client_that_has_gone_ends_the_server_quietly() -> None:
    with client(str(FAULTS)) as one:
        assert one.process.stdout is not None
        command = [sys.executable, "-m", "flopscope", "mcp", str(FAULTS)]
        ping = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(command, input=ping * 3, stdout=write, stderr=subprocess.PIPE, timeout=60,
                              env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
        os.close(write)
        assert done.returncode == 0 and done.stderr == b""


def test_warnings_of_a_trace_precede_the_text(tmp_path: Path) -> None:
    trace = (
        b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1, "dur": 2, "pid": 1, "tid": 1},'
    )
    (tmp_path / "cut.json").write_bytes(trace)
    with client(str(tmp_path)) as one:
        first = one.call("open", path="cut.json")["content"][0]["text"]
        assert first.startswith("Warning: ") and "truncated" in first
        assert not one.call("open", path="cut.json")["content"][0]["text"].startswith("Warning: ")  # it stays open
        one.process.stdin.close()  # type: ignore[union-attr]
        assert one.process.stderr is not None and one.process.stderr.read() == b""
