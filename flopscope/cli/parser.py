"""A parser of command lines whose errors name the command and suggest what a misspelt word may mean."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from flopscope import _core
from flopscope.support.suggest import did_you_mean

T = TypeVar("T")

LIMIT = 30  # rows that are printed by default
OPTIONS_FIRST = """
Options of flopscope come before SCRIPT, -m or -c; everything after them belongs to the program.
"""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that takes options in full only; that of the command is ``parser`` of what it parsed."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **keywords})
        self.set_defaults(parser=self)

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """End with an error about arguments that this command does not have."""
        option = next((text.split("=")[0] for text in unknown if text.startswith("-")), "")
        hint = did_you_mean(option, self._option_string_actions) if option else ""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as problem:
            problem.message += did_you_mean(str(value), map(str, action.choices or ()))
            raise


# Options of several commands ------------------------------------------------------------------------------------------


def parsed(convert: Callable[[str], T], holds: Callable[[T], bool], what: str) -> Callable[[str], T]:
    """Return a parser of values for which ``holds`` is true. Its error says that a text is not ``what``."""

    def parse(text: str) -> T:
        with suppress(ValueError):
            value = convert(text)
            if holds(value):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")

    return parse


def whole(least: int, what: str) -> Callable[[str], int]:
    """Return a parser of whole numbers of at least ``least``."""
    return parsed(int, lambda number: number >= least, what)


positive = whole(1, "a whole number of at least 1")
names = parsed(lambda text: [name.strip() for name in text.split(",") if name.strip()], bool, "a list of names")


def add_program(parser: argparse.ArgumentParser, usage: str, examples: str, *, needed: bool = True) -> None:
    """Add a Python program and its arguments to a command, as ``kind``: "-m", "-c" or "", ``script``, ``arguments``."""
    parser.usage, parser.epilog = usage, examples + OPTIONS_FIRST
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    kind = parser.add_mutually_exclusive_group()
    for option, what in (("-m", "a module"), ("-c", "code")):
        text = f"the program is {what}, as in python {option}"
        kind.add_argument(option, dest="kind", action="store_const", const=option, default="", help=text)
    parser.add_argument("script", nargs=None if needed else "?", metavar="SCRIPT", help=argparse.SUPPRESS)
    rest = parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    rest.required = False  # else an error about a missing SCRIPT names it too


def add_traces(parser: argparse.ArgumentParser, several: str = "") -> None:
    """Add the traces of a command, ``--captures`` and ``--peaks``. several: what more than one trace are."""
    text = f"trace, or folder or quoted pattern of traces{f'; several: {several}' if several else ''}"
    parser.add_argument("traces", nargs="+", metavar="TRACE", help=text)
    add_captures(parser)
    add_peaks(parser)


def add_operands(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--device`` and ``--dtype`` of tensors that a command makes. what: they are called in the help."""
    parser.add_argument("--device", help='"cpu", "cuda" or "cuda:N" (default: the first GPU, or the CPU without one)')
    text = f"dtype of the {what} (default: %(default)s)"
    parser.add_argument("--dtype", choices=_core.float_dtypes, default="float32", help=text)


def add_files(parser: argparse.ArgumentParser, **written: str) -> None:
    """Add an option for each file that a command can write. written: what is in it, by the name of the option."""
    for name, text in written.items():
        names = ("-o", "--output") if name == "output" else (f"--{name}",)
        parser.add_argument(*names, metavar="FILE", help=f"write {text}")


def add_limit(parser: argparse.ArgumentParser) -> None:
    rows = whole(-1, "a number of rows; -1 means all")
    text = "rows to print, -1 for all (default: %(default)s)"
    parser.add_argument("--limit", "--top", type=rows, default=LIMIT, metavar="N", help=text)


def add_peaks(parser: argparse.ArgumentParser) -> None:
    text = (
        "base of shares: datasheet, measured (on this machine if it has the device, else datasheet), none, or rates in "
        "bytes/s and FLOP/s, as memory=8e11,bf16_tensor=2e14 (default: %(default)s). A CPU has only measured peaks: "
        "those in the trace, else those stored on its machine; for a trace without a CPU, measured uses this machine's"
    )
    parser.add_argument("--peaks", type=peaks_wanted, default="datasheet", metavar="SOURCE", help=text)


def peaks_wanted(text: str) -> str:
    """Check a source of peaks, or rates."""
    from flopscope.support.device import PEAK_SOURCES
    from flopscope.support.peaks import stated_peaks

    try:
        if text not in PEAK_SOURCES and stated_peaks(text) is None:
            raise ValueError(f"{text!r} is none of {', '.join(PEAK_SOURCES)}, and states no rates")
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None
    return text


def add_captures(parser: argparse.ArgumentParser) -> None:
    text = "traces recorded while CUDA graphs were captured, files or folders: kernels of replays get the captured ops"
    parser.add_argument("--captures", nargs="+", metavar="TRACE", help=text)
