"""Tools on several traces: compare, ranks."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from flopscope.answers.sentences.comparison import compare
from flopscope.cli.server.arguments import Argument
from flopscope.cli.server.tool import Answer, Call, Room, Tool, shortened
from flopscope.ranks.schema import RANKS
from flopscope.read.paths import find_traces
from flopscope.results.comparison import COMPARISON, By

Kind = Literal["op", "kernel"]

TOP = 10
RANKS_SHOWN = 50
WIDTH = 120
TRACE = "file of a trace, as open lists it"


def _compare(room: Room, call: Call, a: str, b: str, by: By | None, kind: Kind, top: int) -> Answer:
    names = (Path(a).name, Path(b).name)
    names = (a, b) if names[0] == names[1] or not all(names) else names
    with ExitStack() as stack:
        first, second = room.open(call, stack, a, b)
        found = compare(first.trace, second.trace, by=by, kind=kind, names=names, peaks="datasheet")
        call.check()
        document = found.to_dict(files=[a, b])
    cut = [shortened(document, name, top) for name in ("changes", "rows")]
    return Answer("\n".join([found.table(top, width=WIDTH).rstrip(), *filter(None, cut)]), document)


def _ranks(room: Room, call: Call, paths: list[str], top: int) -> Answer:
    from flopscope.ranks.load import load_ranks

    files: list[str] = []
    for path in paths:
        files += map(room.folders.trace, find_traces(room.folders.path(path)).paths)
    with room.alone(call):
        call.check()
        found = load_ranks(list(dict.fromkeys(files)), workers=1 if len(files) < 3 else None)
    call.check()
    document = found.to_dict()
    named = {rank for finding in document["findings"] for rank in finding["ranks"] or ()}
    document["ranks"].sort(key=lambda row: row["rank"] not in named)  # those of the findings first
    cut = [shortened(document, name, top) for name in ("ranks", "files")]
    return Answer("\n".join([str(found.summary()).rstrip(), *filter(None, cut)]), document)


TOOLS = (
    Tool(
        "compare",
        "Compare two traces",
        "What changed from trace a to trace b, and why: other calls, other work, another rate, ops that replaced each "
        "other. Use it for before and after a change, for two versions or two machines; ratios are a over b, and a "
        "negative slowdown_pct means that b is faster.",
        (
            Argument("a", "text", TRACE, required=True),
            Argument("b", "text", "the trace to compare it with", required=True),
            Argument("by", "text", "what rows are matched by; by default what fits", choices=("name", "shape")),
            Argument("kind", "text", "what is compared", "op", choices=("op", "kernel")),
            Argument("top", "integer", "changes and rows at most", TOP, least=1, most=200),
        ),
        COMPARISON,
        _compare,
        "Ask for fewer by top.",
    ),
    Tool(
        "ranks",
        "Compare ranks",
        "Which rank, host or link of a distributed program is slow, and why: clocks are aligned by the collectives, "
        "and waiting is told apart from work. Name the folder of the traces or each file. It needs the extra `ranks`.",
        (
            Argument("paths", "texts", "traces of the ranks, or folders of them", required=True),
            Argument("top", "integer", "ranks and files listed; those of the findings first", RANKS_SHOWN, least=1,
                     most=500),
        ),
        RANKS,
        _ranks,
        "Set top.",
    ),
)  # fmt: skip
