"""Requests at random: whatever is sent, the server answers in the protocol's form, and answers the next request."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from helpers import ROOT
from helpers.mcp import Client, client

pytest.importorskip("hypothesis")
from hypothesis import given, settings
from hypothesis import strategies as st

FAULTS = ROOT / "benchmarks" / "results" / "nvidia-h200" / "faults"
EXAMPLES = int(os.environ.get("FLOPSCOPE_TEST_EXAMPLES", "150"))
CODES = {-32700, -32600, -32601, -32602, -32603, -32022}
METHODS = ("initialize", "ping", "tools/list", "tools/call", "server/discover", "notifications/cancelled", "x")
TOOLS = ("open", "summary", "advice", "rows", "explain", "compare", "what_if", "accounting", "kernels", "try", "x")
NAMES = ("path", "budget", "row", "event", "a", "b", "rules", "dtype", "device", "peaks", "host_us_per_launch", "top")
NAMES += ("steps", "filter", "sort_by", "group_by", "kind", "by", "paths", "")
TRACES = ("pointwise_before.json.gz", "pairs.json", "graph_after.json.gz", ".", "..", "aten::mul", "fuse", "flops")

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(TRACES)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.sampled_from(NAMES), inner),
    max_leaves=12,
)
ids = st.integers() | st.text(max_size=8) | scalars
calls = st.fixed_dictionaries(
    {"name": st.sampled_from(TOOLS)},
    optional={"arguments": st.dictionaries(st.sampled_from(NAMES), scalars | values, max_size=4), "_meta": values},
)
likely = st.fixed_dictionaries(
    {"path": st.sampled_from(TRACES)},
    optional={
        "top": st.integers(-1, 300), "row": scalars, "event": st.integers(-1, 10**6), "filter": st.text(max_size=4),
        "budget": st.integers(0, 6000), "steps": st.lists(st.text(max_size=4), max_size=2), "sort_by": scalars,
        "rules": st.lists(st.sampled_from(TRACES), max_size=2), "dtype": scalars, "peaks": values,
        "host_us_per_launch": st.floats(), "group_by": st.sampled_from(("name", "shape", "step", "a,b", "name,stream")),
    },
)  # fmt: skip
requests = st.fixed_dictionaries(
    {"jsonrpc": st.sampled_from(("2.0", "1.0")), "method": st.sampled_from(METHODS)},
    optional={"id": ids, "params": calls | values},
)


@pytest.fixture(scope="module")
def one() -> Iterator[Client]:
    with client(str(FAULTS)) as found:
        yield found
        assert found.end() == (0, "")


def require_alive(one: Client, sent: bytes) -> None:
    """Send a line, and a ping after it, which must be answered; so may be the line, in the protocol's form."""
    one.send(sent)
    wanted = one.begin("ping")
    while (response := one.receive())["id"] != wanted or response.get("result") != {}:
        if "error" in response:
            assert response["error"]["code"] in CODES and response["error"]["message"]


@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=200))
def test_bytes(one: Client, sent: bytes) -> None:
    require_alive(one, sent.replace(b"\n", b" "))


@settings(max_examples=EXAMPLES)
@given(values | requests)
def test_json(one: Client, sent: Any) -> None:
    require_alive(one, json.dumps(sent).encode())


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(TOOLS[:-2]), likely)
def test_calls(one: Client, tool: str, given_: dict[str, Any]) -> None:
    text = json.dumps(
        {"jsonrpc": "2.0", "id": "call", "method": "tools/call", "params": {"name": tool, "arguments": given_}}
    )
    one.send(text.encode())
    response = one.receive()
    assert response["id"] in ("call", None)  # no id where the text is not JSON, because it has NaN
    if "result" in response:
        assert response["result"]["isError"] == ("structuredContent" not in response["result"])
        assert response["result"]["content"][0]["text"]
    else:
        assert response["error"]["code"] == -32700 and ("NaN" in text or "Infinity" in text)
