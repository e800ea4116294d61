"""The kinds of rows, and the names of rows that stand for no single op."""

from __future__ import annotations

KINDS = ("op", "kernel", "range", "all")
NO_OP = "(no op)"
NO_MODULE = "(no module)"


def kind_of(device_type: str, is_user_annotation: bool) -> str:
    """Return the kind of a row: "op" (an op or API call of the host), "kernel" (work of a device) or "range"."""
    return "range" if is_user_annotation else "op" if device_type == "cpu" else "kernel"


def require_kind(kind: str | None) -> None:
    """Raise ValueError for an unknown kind."""
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
