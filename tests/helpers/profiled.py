"""Tables of profiles as plain numbers."""

from typing import Any

import flopscope as fs
from flopscope.results.table import EventRow, EventTable


def table_of(prof: fs.profile, **keywords: Any) -> EventTable:
    return prof.key_averages(peaks="none", **keywords)


def counts(prof: fs.profile) -> dict[str, int]:
    return {row.key: row.count for row in table_of(prof)}


def rows_of(prof: fs.profile) -> dict[str, EventRow]:
    return {row.key: row for row in table_of(prof)}
