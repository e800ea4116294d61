"""IPython magics: ``%load_ext flopscope`` enables ``%%flopscope`` for cells and ``%measure expression``."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from flopscope.support.imports import after_import, around
from flopscope.support.package import warn_user

__all__ = ["load_ipython_extension"]

NAME_LENGTH = 60
MOST_ROWS = 100


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics with an IPython shell. ``%load_ext flopscope`` calls this function."""
    after_import("torch", _Recorded.torch_imported)

    def flopscope(line: str, cell: str | None = None) -> Any:
        return profile_code(ipython, line, cell)

    def measure(line: str, local_ns: Mapping[str, Any] | None = None) -> Any:
        return measure_expression(ipython, line, local_ns or {})

    flopscope.__doc__, measure.__doc__ = profile_code.__doc__, measure_expression.__doc__
    # The attributes set by IPython's decorators @needs_local_scope and @output_can_be_silenced (by a final semicolon).
    vars(measure)["needs_local_scope"] = True
    for magic in (flopscope, measure):
        vars(magic)["_ipython_magic_output_can_be_silenced"] = True
    ipython.register_magic_function(flopscope, magic_kind="line_cell", magic_name="flopscope")
    ipython.register_magic_function(measure, magic_kind="line", magic_name="measure")


class _Options(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        from IPython.core.error import UsageError  # shown without a traceback

        raise UsageError(f"{self.prog}: {message}\n{self.format_usage().rstrip()}") from None


class _Recorded:
    """A recording by flopscope's profile and, of a process that has imported torch, by torch's profiler as well.

    ``profiles`` are those that have recorded something, torch's last; the last one if none has.
    """

    _current: _Recorded | None = None

    @classmethod
    def torch_imported(cls, torch: Any) -> None:
        """Begin torch's recording, also in a cell that imports it."""
        around(torch.autograd.profiler.profile, "_prepare_trace", before=lambda _: cls._give_way())
        if cls._current is not None:
            cls._current._stop()  # CUPTI has one user at a time
            cls._current._start()

    @classmethod
    def _give_way(cls) -> None:
        """End torch's recording before another one of the program starts: a process can have only one."""
        if cls._current is not None and cls._current._running[1:]:
            cls._current._stop(first=1)
            warn_user(
                "%%flopscope: torch records for one profiler at a time; from that of the cell on, not for this one"
            )

    def __enter__(self) -> None:
        self.profiles: list[Any] = []
        self._running: list[Any] = []
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        _Recorded._current = self

    def __exit__(self, *problem: object) -> None:
        _Recorded._current = None
        self._stop()
        self.profiles = [prof for prof in self.profiles if len(prof)] or self.profiles[-1:]

    def _start(self) -> None:
        from flopscope.record.profile import profile
        from flopscope.support.capture import ProfilerActivity

        torch = sys.modules.get("torch")
        with_torch = torch is not None and not torch.autograd.profiler._is_profiler_enabled
        self._begin(profile(record_shapes=True, activities=[ProfilerActivity.CPU] if with_torch else None))
        if with_torch:
            from flopscope.record.torch_hooks import all_threads_setting, quiet_start
            from flopscope.torch import profile as torchs

            with quiet_start(torch):
                self._begin(torchs(record_shapes=True, experimental_config=all_threads_setting(torch)))

    def _begin(self, prof: Any) -> None:
        prof.start()
        self._running.append(prof)
        self.profiles.append(prof)

    def _stop(self, first: int = 0) -> None:
        """Stop what is running. first: 1 for torch's profiler alone."""
        while self._running[first:]:
            self._running.pop().stop()


def profile_code(ipython: Any, line: str, cell: str | None) -> Any:
    """Profile a cell, or the rest of the line, and display the table.

    %%flopscope [--no-peaks] [-o NAME]

    The value of the cell is that of its last expression, as without the magic. -o assigns the profile to a variable,
    for other tables of it, also if the cell raises an exception. --no-peaks omits shares of the device's peaks, which
    take a few seconds to measure the first time.

    If torch is imported, torch's profiler records: the profile is a flopscope.torch.profile. flopscope's own ops are
    then in a table of their own, with times of the host, and in the profile that -o assigns if there are no others.
    """
    parser = _Options(prog="%%flopscope", add_help=False, allow_abbrev=False)
    parser.add_argument("--no-peaks", action="store_true")
    parser.add_argument("-o", "--output", metavar="NAME")
    if cell is None:
        line, cell = _options_and_rest(line, flags=("--no-peaks",))
    options = parser.parse_args(shlex.split(line))
    if not cell.strip():
        parser.error("the code to profile is missing")
    if options.output and not options.output.isidentifier():
        parser.error(f"{options.output!r} is not a valid variable name")
    run = _compiled(ipython, cell)

    recorded = _Recorded()
    try:
        with recorded:
            value = run()
    finally:
        if options.output:
            ipython.user_ns[options.output] = recorded.profiles[-1]
    from flopscope.show import html

    for prof in recorded.profiles:
        averages = prof.key_averages(peaks="none" if options.no_peaks else "measured")
        text = averages.table(row_limit=MOST_ROWS, brief=True) or str(averages)
        ipython.display_pub.publish({"text/plain": text, "text/html": html.render(averages, MOST_ROWS)})  # one is shown
    return value


def measure_expression(ipython: Any, line: str, local_names: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Measure an expression by flopscope.measure() and return the Measurement for display.

    %measure [--flops N] [--bytes N] [--max-time SECONDS] expression
    """
    parser = _Options(prog="%measure", add_help=False, allow_abbrev=False)
    parser.add_argument("--flops", type=float)
    parser.add_argument("--bytes", type=float)
    parser.add_argument("--max-time", type=float)
    line, expression = _options_and_rest(line)
    options = vars(parser.parse_args(shlex.split(line)))
    if not expression:
        parser.error("the expression to measure is missing")
    expression = ipython.transform_cell(expression).strip().rstrip(";")
    code = compile(f"lambda: (\n{expression}\n)", "<%measure>", "eval")

    from flopscope.measuring.measuring import measure

    arguments = {name: value for name, value in options.items() if value is not None}
    call = eval(code, {**ipython.user_ns, **local_names} if local_names else ipython.user_ns)
    call.__name__ = " ".join(expression.split())[:NAME_LENGTH]  # the name in the Measurement
    return measure(call, **arguments)


def _options_and_rest(line: str, flags: tuple[str, ...] = ()) -> tuple[str, str]:
    """Split a line into its options, each with a value unless it is a flag, and the code after them."""
    rest = line.strip()
    while match := re.match(r"(--[a-z][a-z-]*|-o)(=\S*)?(\s+|$)", rest):
        rest = rest[match.end() :]
        if match[2] is None and match[1] not in flags:
            rest = rest[len(rest.split(maxsplit=1)[0]) :].lstrip() if rest else rest
    options = line.strip()[: len(line.strip()) - len(rest)]
    return options, rest


def _compiled(ipython: Any, cell: str) -> Callable[[], Any]:
    """Compile a cell, including IPython's syntax, to a function that returns the value of its last expression."""
    text = ipython.transform_cell(cell)
    name = ipython.compile.cache(text)  # so that tracebacks show source lines
    tree = ast.parse(text, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    body = compile(tree, name, "exec")
    value = compile(ast.Expression(last.value), name, "eval") if isinstance(last, ast.Expr) else None

    def run() -> Any:
        exec(body, ipython.user_ns)
        return None if value is None else eval(value, ipython.user_ns)

    return run
