"""Messages of JSON-RPC 2.0 as the Model Context Protocol restricts them: one JSON object a line, no batches.

A line is a request, a notification, or refused with the error that its sender gets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any, NamedTuple, NoReturn

from flopscope.support.safe import shown

PARSE_ERROR, INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
UNSUPPORTED_VERSION = -32022
"""The error of the protocol for a version that the server does not speak."""
LONGEST = 1 << 20
"""Bytes of a request."""
DEEPEST = 64
"""Lists and objects within each other in a request."""

Id = str | int | None


class Refused(Exception):
    """A message that is answered by an error."""

    def __init__(self, code: int, message: str, number: Id = None, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.number, self.data = code, message, number, data

    def response(self) -> dict[str, Any]:
        """Return the response."""
        error = {"code": self.code, "message": self.message}
        return {
            "jsonrpc": "2.0",
            "id": self.number,
            "error": error if self.data is None else {**error, "data": self.data},
        }


class Message(NamedTuple):
    """A request or, without a number, a notification."""

    method: str
    params: Mapping[str, Any]
    number: Id = None
    """The ``id`` of a request."""

    @property
    def is_request(self) -> bool:
        """Whether it is to be answered."""
        return self.number is not None


def read_line(stream: IO[bytes]) -> bytes | None:
    """Return the next line, None at the end. Raise Refused for one that is too long, of which nothing is kept."""
    line = stream.readline(LONGEST + 1)
    if not line:
        return None
    if len(line) <= LONGEST:
        return line
    while line and not line.endswith(b"\n"):
        line = stream.readline(LONGEST)
    raise Refused(INVALID_REQUEST, f"the request is longer than {LONGEST:,} bytes")


def message_of(line: bytes) -> Message | None:
    """Return the message of a line; None for an empty line and for a response. Raise Refused for anything else."""
    if not line.strip():
        return None
    try:
        content = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise Refused(PARSE_ERROR, "it is nested too deeply") from None
    except ValueError as problem:
        raise Refused(PARSE_ERROR, f"it is not JSON: {problem}") from None
    if isinstance(content, list):
        raise Refused(INVALID_REQUEST, "batches are not supported: send one request a line")
    if not isinstance(content, dict):
        raise Refused(INVALID_REQUEST, f"a message is an object, not {shown(content)}")
    number = content.get("id")
    if isinstance(number, bool) or not isinstance(number, str | int | None) or ("id" in content and number is None):
        raise Refused(INVALID_REQUEST, f"id must be a text or a whole number, not {shown(number)}")
    method = content.get("method")
    if method is None and number is not None and ("result" in content or "error" in content):
        return None  # a response: this server asks nothing
    if content.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise Refused(INVALID_REQUEST, 'a request has "jsonrpc": "2.0" and a method, which is a text', number)
    params = content.get("params", {})
    if not isinstance(params, dict) or _depth(params) > DEEPEST:
        raise Refused(INVALID_PARAMS, f"params must be an object, nested at most {DEEPEST} deep", number)
    return Message(method, params, number)


def line_of(response: Mapping[str, Any]) -> bytes:
    """Return a response as one line."""
    return json.dumps(response, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _depth(value: Any) -> int:
    """Return how deep lists and objects are nested."""
    depth, level = 0, [value]
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return depth
