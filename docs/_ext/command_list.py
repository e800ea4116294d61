"""The directive ``flopscope-commands``: every command of the command line, with its arguments and options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from flopscope.cli.program import make_parser

WIDTH = 88  # of usages, in characters


def setup(app: object) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("flopscope-commands", CommandList)  # type: ignore[attr-defined]
    return {"parallel_read_safe": True}


class CommandList(SphinxDirective):
    """Describe the commands in the order of ``flopscope --help``."""

    def run(self) -> list[nodes.Node]:
        container = nodes.Element()
        lines = [line for command in commands(make_parser()) for line in _described(*command)]
        self.state.nested_parse(StringList(lines, "flopscope-commands"), self.content_offset, container)
        return container.children


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
