"""The directive ``flopscope-ops``: every op of the core, with its signature and docstring."""

from __future__ import annotations

import inspect
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from plain_docstrings import converted
from sphinx.util.docutils import SphinxDirective

import flopscope


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("flopscope-ops", OpList)
    return {"parallel_read_safe": True}


class OpList(SphinxDirective):
    """Describe the ops as functions of ``flopscope``, in the order of the op table."""

    def run(self) -> list[nodes.Node]:
        lines: list[str] = []
        for name in flopscope.__all__:
            thing = getattr(flopscope, name)
            if isinstance(thing, flopscope.Op):
                lines += [f".. py:function:: flopscope.{name}{inspect.signature(thing)}", ""]
                lines += [f"   {line}" for line in converted(_body(thing))]
        container = nodes.Element()
        self.state.nested_parse(StringList(lines, "flopscope-ops"), self.content_offset, container)
        return container.children


def _body(op: Any) -> list[str]:
    """The docstring without its first line, the signature."""
    lines = (inspect.getdoc(op) or "").splitlines()
    return lines[2:] if lines and lines[0].startswith(f"{op.__name__}(") else lines
