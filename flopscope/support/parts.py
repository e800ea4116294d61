"""What the parts of the accounting are called: rows of csrc/accounting/parts.def."""

from __future__ import annotations

from collections.abc import Mapping

from flopscope import _core


def parts_of(on_device: bool) -> Mapping[str, _core.Part]:
    """Return the parts of a device, or of a program without one, by name."""
    return _core.parts if on_device else _core.bare_parts
