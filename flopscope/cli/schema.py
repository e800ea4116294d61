"""The command ``flopscope schema``: the JSON Schema of what ``--json`` and ``to_dict()`` give."""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from typing import Any

from flopscope.support.documents import Document

DOCUMENTS = {
    "accounting": "cli.server.documents:ACCOUNTING",
    "advice": "show.advice:ADVICE",
    "bench": "cli.bench:BENCH",
    "compared_sides": "measuring.trying.turns:COMPARED",
    "comparison": "results.comparison:COMPARISON",
    "device": "support.device:DEVICE",
    "devices": "cli.measure:DEVICES",
    "explained": "cli.server.documents:EXPLAINED",
    "measurement": "measuring.measurement:MEASUREMENT",
    "opened": "cli.server.documents:OPENED",
    "ranks": "ranks.schema:RANKS",
    "stragglers": "ranks.schema:STRAGGLERS",
    "summaries": "show.advice:SUMMARIES",
    "summary": "show.advice:SUMMARY",
    "sweep": "measuring.sweep:SWEEP",
    "table": "results.columns:TABLE",
    "times": "measuring.paired:TIMES",
    "check": "measuring.checking.result:CHECKED",
    "tried": "measuring.trying.result:TRIED",
    "what_if": "cli.server.documents:WHAT_IF",
}
"""Where the kinds of documents are described."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = f"only documents of this kind: {', '.join(DOCUMENTS)} (default: of any)"
    parser.add_argument("kind", nargs="?", choices=DOCUMENTS, metavar="KIND", help=text)
    parser.set_defaults(run=lambda options: print(json.dumps(schema(options.kind), indent=1, ensure_ascii=False)))


def schema(kind: str | None = None) -> dict[str, Any]:
    """Return the JSON Schema of the documents of a kind, or of all."""
    if kind is None:
        every = {name: document(name).schema() for name in DOCUMENTS}
        return {"$schema": DIALECT, "oneOf": [{"$ref": f"#/$defs/{name}"} for name in every], "$defs": every}
    return {"$schema": DIALECT, **document(kind).schema()}


def document(kind: str) -> Document:
    """Return the description of the documents of a kind."""
    module, _, name = DOCUMENTS[kind].partition(":")
    found: Document = getattr(import_module(f"flopscope.{module}"), name)
    return found
