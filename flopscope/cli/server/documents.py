"""What tools return: a text for models that see no structure, and a document. Here are those of no command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flopscope.answers.analysis import PARTS
from flopscope.results.columns import ROW_FIELDS
from flopscope.show.advice import ACCOUNTING_FIELDS, ADVICE_FIELDS
from flopscope.support.documents import Document, Field, columns, record, rows


class Answer(NamedTuple):
    """What a tool returns."""

    text: str
    document: dict[str, Any]


def shortened(document: dict[str, Any], name: str, most: int) -> list[str]:
    """Cut a list of a document; return a sentence that says so, none if nothing was cut."""
    found: Sequence[Any] = document[name]
    document[name] = found[:most]
    return [f"{most} of {len(found)} {name} are listed."] if len(found) > most else []


OPENED = Document(
    "opened",
    "the traces in a folder, or what a trace has recorded",
    (
        *columns("path$"),
        rows("files", columns("file$ size#:bytes"), "files of a folder that may be traces, by their names"),
        record(
            "trace",
            (
                *columns("events# steps# devices@ recorded@", recorded="what beyond names and times was recorded"),
                *columns("step:µs", why="there are no steps", step="median duration of the steps"),
                *columns("known_bytes known_flops", "share", "there is no device time", known_bytes="of device time"),
                *columns("rank#", why="it is of no distributed program"),
                *columns("dropped#", dropped="events that are in no table"),
            ),
            "of a file",
            "the path is a folder",
        ),
    ),
)
ACCOUNTING = Document(
    "accounting",
    "every instant of each device in chosen steps, or in a window of time, in parts",
    (
        *columns("file$"),
        *columns(
            "begin:µs end:µs",
            why="steps were accounted for, not a window of time",
            begin="of the window, since the profile began",
        ),
        rows("accounting", ACCOUNTING_FIELDS, "the last row is of all steps, or of one that nothing recorded"),
    ),
)
WHAT_IF = Document(
    "what_if",
    "the accounting of a profile as it would be after a change",
    (
        *columns("file$"),
        Field("change", "any", doc="the arguments of the change"),
        *columns("steps#", steps="number of steps that the times are sums over; 1 without steps"),
        record("before", ACCOUNTING_FIELDS, "as it is without recording"),
        record("after", ACCOUNTING_FIELDS, "after the change"),
        *columns("saving:%", why="nothing took time", saving="of the time before"),
    ),
)
_EVENT = columns(
    "id# name$ kind$ start:µs duration:µs device_type$ device# thread# moved#:bytes",
    why="the event had not ended",
    id="its place in `events()`",
    start="since the profile began",
    thread="for device work, the stream",
    moved="copied or filled, or allocated (above 0) or freed (below 0)",
)
EXPLAINED = Document(
    "explained",
    "a row of the table grouped by shape, or a single event, with what belongs to it",
    (
        *columns("file$"),
        record("row", ROW_FIELDS, why="an event was explained"),
        record(
            "op",
            (
                *columns("per$ part$", part=f"where the time beyond the ideal belongs, one of {', '.join(PARTS)}"),
                *columns("time:µs ideal:µs calls", ideal="the least that the peaks allow"),
                *columns("event#", event="`id` of one of its events in `events()`"),
            ),
            "the time of the row in the accounting",
            "its time is not that of one op of the accounting: it did no work in the steps that are alike",
        ),
        record("event", _EVENT, why="a row was explained; `op` names one of its events"),
        rows("around", columns("kind$ name$"), "what encloses the event, innermost first"),
        record("launcher", columns("id# name$"), "the op that launched it", "no recorded op launched it"),
        rows("kernels", columns("name$ count# time:µs"), "what it launched, the longest time first"),
        rows("advice", ADVICE_FIELDS, "the advice that rests on it"),
    ),
)
