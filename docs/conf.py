"""The settings of the documentation: ``python -m sphinx -W -b html docs build/docs``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import flopscope

project = "flopscope"
author = "the flopscope developers"
project_copyright = author
version = release = flopscope.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "reference"]
exclude_patterns = ["_ext"]

myst_heading_anchors = 3

# Importing these takes long, or they are not installed where the documentation is built.
autodoc_mock_imports = ["torch", "pytest"]
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
smartquotes = False  # quoted words are strings of Python

html_theme = "furo"
html_title = f"flopscope {version}"
html_copy_source = False
html_show_sphinx = False

# Classes whose instances flopscope makes: how they are made is not part of the interface.
MADE_HERE = (
    *("Comparison", "Device", "EventRow", "EventTable", "Measurement", "Stragglers", "Sweep", "TimesCompared", "Trace"),
    *("WorkCall", "perf.Check", "perf.Perf", "perf.Settings", "ProfilerAction", "ProfilerActivity", "Tensor"),
)


def _without_constructor(app: Any, what: str, name: str, *_: Any) -> tuple[str, None] | None:
    return ("", None) if name.removeprefix("flopscope.") in MADE_HERE else None


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", _without_constructor)
