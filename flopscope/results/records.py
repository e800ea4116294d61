"""The document of a table, and the ids of its rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from flopscope.results.columns import ROW_FIELDS
from flopscope.support.documents import Document, Field, by_name, columns, record, rows

DEVICE = record("device", columns("kind$ name$"), "the device that the times refer to")
_SHARE = "a share of the device time: of ops whose bytes, or FLOPs, are known"
_TIMES = columns("name$ time:µs")
_SOURCE = Field("share", unit="share")
COVERAGE = (
    *columns("bytes flops", "share", "there is no time to take a share of", bytes=_SHARE, flops=_SHARE),
    rows("unmodelled", _TIMES, "ops whose bytes are unknown"),
    rows("estimated", _TIMES, "ops whose work is an estimate", optional=True),
    rows("estimated_flops", _TIMES, "ops of whose work only the FLOPs are an estimate", optional=True),
    rows(
        "misfits", columns("name$ seen$ expected$"), "ops with other arguments than their rule expects", optional=True
    ),
    *columns("unseen_graphs:µs", optional=True, unseen_graphs="kernels of CUDA graphs whose capture was not seen"),
    by_name("bytes_source", _SOURCE, "the share of bytes by where they are known from", optional=True),
    by_name("flops_source", _SOURCE, "the share of flops by where they are known from", optional=True),
)
TABLE = Document(
    "table",
    "the rows of a table",
    (
        DEVICE,
        record("coverage", COVERAGE, "how much of the time has known work"),
        by_name("peaks", record("peak", columns("source$ name$")), "what shares are relative to, by device"),
        Field("files", "texts", doc="the traces that the rows are of", optional=True),
        rows("rows", ROW_FIELDS),
    ),
)
IDENTITY = ("key", "overload_name", "device_type", "is_user_annotation", "input_shapes", "input_dtypes")
"""The columns whose values tell the rows of a table apart, but for what else it is grouped by."""


def row_id(values: Iterable[Any]) -> str:
    """Return the id of the row that has these values of IDENTITY, and of what else the table is grouped by."""
    from hashlib import blake2b

    return blake2b(json.dumps([*values]).encode(), digest_size=6).hexdigest()
