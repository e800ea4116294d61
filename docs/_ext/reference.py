"""What the API reference and the page of the command line are generated from.

The directives ``flopscope-ops``, every op with its signature and docstring, and ``flopscope-commands``, every command
with its arguments and options; and docstrings in plain prose as reStructuredText. The docstrings of flopscope are
written to be read with ``help()``. Three of their forms mean something else in reStructuredText, or nothing:

* an indented block after a blank line is code;
* a paragraph whose lines begin with ``name: text`` describes arguments, and becomes a list;
* names that end in an underscore, single backticks, asterisks and bars are text.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

import flopscope
from flopscope.cli.program import make_parser

WIDTH = 88  # of usages, in characters
ENTRY = re.compile(r"(\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*): (.*)")
LITERAL = re.compile(r"(``.+?``)")


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("flopscope-ops", OpList)
    app.add_directive("flopscope-commands", CommandList)
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}


class _List(SphinxDirective):
    """A directive that stands for lines of reStructuredText."""

    def lines(self) -> Iterator[str]:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        container = nodes.Element()
        self.state.nested_parse(StringList([*self.lines()], self.name), self.content_offset, container)
        return container.children


class OpList(_List):
    """The ops as functions of ``flopscope``, in the order of the op table."""

    def lines(self) -> Iterator[str]:
        for name in flopscope.__all__:
            thing = getattr(flopscope, name)
            if isinstance(thing, flopscope.Op):
                yield from (f".. py:function:: flopscope.{name}{inspect.signature(thing)}", "")
                yield from (f"   {line}" for line in converted(_body(thing)))


class CommandList(_List):
    """The commands in the order of ``flopscope --help``."""

    def lines(self) -> Iterator[str]:
        for command, text in commands(make_parser()):
            yield from _described(command, text)


def _body(op: Any) -> list[str]:
    """The docstring without its first line, the signature."""
    lines = (inspect.getdoc(op) or "").splitlines()
    return lines[2:] if lines and lines[0].startswith(f"{op.__name__}(") else lines


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Yield the parser and the help of each command, and of the actions of commands that have some."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {one.dest: one.help or "" for one in action._choices_actions}
            for name, command in action.choices.items():
                yield command, helps[name]
                yield from commands(command)


def _described(command: argparse.ArgumentParser, text: str) -> Iterator[str]:
    yield from (f".. rubric:: {command.prog}", "", f".. program:: {command.prog}", "")
    yield from (text[:1].upper() + text[1:] + ".", "", ".. code-block:: text", "")
    formatter = command.formatter_class(command.prog, width=WIDTH)  # whatever the terminal, and without its colours
    formatter.add_usage(command.usage, command._actions, command._mutually_exclusive_groups, prefix="")
    yield from (f"   {line}" for line in formatter.format_help().splitlines())
    yield ""
    for action in command._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)):
            continue
        values = _values_of(command, action)
        names = [f"{name} {values}".strip() for name in action.option_strings] or [values]
        yield from (f".. option:: {', '.join(names)}", "", f"   {_help_of(command, action)}", "")


def _values_of(command: argparse.ArgumentParser, action: argparse.Action) -> str:
    formatter = command._get_formatter()
    if not action.option_strings:
        return formatter._format_args(action, action.dest)
    return (
        "" if action.nargs == 0 else formatter._format_args(action, formatter._get_default_metavar_for_optional(action))
    )


def _help_of(command: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = command._get_formatter()._expand_help(action).replace("*", "\\*").replace("`", "``")
    return re.sub(r"(?<![\w`])--[a-z-]+", r"``\g<0>``", text)


def _process(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = converted(lines)


def converted(lines: list[str]) -> list[str]:
    """Return the lines of a plain docstring as lines of reStructuredText."""
    made: list[str] = []
    after_code = False
    for blank, block in groupby(lines, lambda line: not line.strip()):
        paragraph = list(block)
        if blank:
            made.append("")
            continue
        if paragraph[0].startswith("    "):
            language = "text" if any("…" in line for line in paragraph) else "python"
            made += ([] if after_code else [f".. code-block:: {language}", ""]) + [f"    {line}" for line in paragraph]
            after_code = True
            continue
        after_code = False
        made += _entries(paragraph) if _has_entries(paragraph) else [_escaped(line) for line in paragraph]
    return [*made, ""]


def _has_entries(paragraph: list[str]) -> bool:
    """Whether a paragraph describes arguments: its first line does, or one that indented lines follow."""
    following = pairwise(paragraph)
    described = any(ENTRY.match(line) and after.startswith("    ") for line, after in following)
    return ENTRY.match(paragraph[0]) is not None or described


def _entries(paragraph: list[str]) -> list[str]:
    made: list[str] = []
    in_list = False
    for line in paragraph:
        entry = ENTRY.match(line)
        if entry:
            made += [] if in_list else [""]
            names = ", ".join(f"**{_escaped(name)}**" for name in entry[1].split(", "))
            made.append(f"* {names}: {_escaped(entry[2])}")
            in_list = True
        elif in_list:
            made.append(f"  {_escaped(line.strip())}")
        else:
            made.append(_escaped(line))
    return [*made, ""]


def _escaped(line: str) -> str:
    """Outside of literals, quotes of one backtick are literals; other marks of reStructuredText are text."""
    if line.startswith((":", "..")):
        return line  # a field list or a directive
    parts = LITERAL.split(line)
    for place in range(0, len(parts), 2):
        text = re.sub(r"`([^`]+)`", r"``\1``", parts[place])
        pieces = LITERAL.split(text)
        pieces[::2] = [re.sub(r"([*|])|(?<=\w)(_)(?!\w)", r"\\\1\2", piece) for piece in pieces[::2]]
        parts[place] = "".join(pieces)
    return "".join(parts)
