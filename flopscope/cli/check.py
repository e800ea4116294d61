"""The command ``flopscope check``: is a kernel right, is it faster than a reference, and how far from the limit.

The kernel is imported in a process of its own alone: the reference, the function that makes the inputs and what is
expected are in this one. A module that has both would be imported in both processes, so that the kernel could call the
reference; they belong into modules of their own. The exit status is that of a test: 0 for a kernel that is right, also
if it is slower, since a slower kernel may be what is wanted for now.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from importlib import import_module
from typing import Any

from flopscope.cli.measure import WHERE_MODULES_ARE, function_named, raise_with_place
from flopscope.cli.parser import add_files, parsed
from flopscope.support import own_path
from flopscope.support.device import PEAK_SOURCES
from flopscope.support.files import write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = f"The exit status is 1 if the kernel is wrong or its time invalid. {WHERE_MODULES_ARE}"
    parser.add_argument("kernel", metavar="MODULE:KERNEL", help="the function to check, in a module of its own")
    text = "the function that computes the same, in another module"
    parser.add_argument("--against", required=True, metavar="MODULE:REFERENCE", help=text)
    text = "a function of a seed that returns the arguments of both (default: inputs, beside the reference)"
    parser.add_argument("--inputs", metavar="MODULE:MAKE", help=text)
    text = "draw other contents and shapes like those of the first inputs, instead of further seeds"
    parser.add_argument("--vary", action="store_true", help=text)
    text = "place of an argument into which the kernel writes its results; may be repeated"
    parser.add_argument("--output", type=int, action="append", default=[], metavar="PLACE", help=text)
    text = "another function that computes the same, to time beside the kernel, or torch.compile; may be repeated"
    parser.add_argument("--baseline", action="append", default=[], metavar="MODULE:FUNCTION", help=text)
    parser.add_argument("--max-time", type=float, default=3.0, help="seconds of timing (default: %(default)s)")
    text = "seconds of a call of the kernel, at most (default: %(default)s)"
    seconds = parsed(float, lambda number: number > 0, "a positive number of seconds")
    parser.add_argument("--timeout", type=seconds, default=60.0, help=text)
    parser.add_argument("--peaks", choices=PEAK_SOURCES, default="measured", help="base of the limit")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs (default: %(default)s)")
    add_files(parser, json="the verdict, and all numbers")
    parser.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    from flopscope.measuring.checking.bench import Bench
    from flopscope.measuring.checking.check import MARGIN, Run, checked_arguments
    from flopscope.measuring.checking.inputs import Inputs, made
    from flopscope.measuring.checking.isolated import Isolated, Raised
    from flopscope.measuring.measuring import require_numbers

    own_path.restore()
    require_numbers(max_time=options.max_time)
    reference = function_named(options.against)
    named = options.inputs or f"{options.against.rpartition(':')[0]}:inputs"
    inputs = function_named(named, (options.seed,))
    try:
        given = made(inputs, options.seed)
    except (ValueError, RuntimeError, OverflowError, OSError, ImportError) as problem:
        raise_with_place(named, problem)
    args, written = checked_arguments(given, options.output)
    others = [
        import_module("torch").compile(reference) if text == "torch.compile" else function_named(text)
        for text in options.baseline
    ]
    kernel = Isolated(function_named, options.kernel, args, frozenset(), options.timeout)
    try:
        bench = Bench([reference, *others], args, [frozenset(options.output)] * (1 + len(others)))
        sides: list[Any] = [(kernel, 0), *((bench, place) for place in range(1 + len(others)))]
        names = [text.rpartition(":")[2] for text in (options.kernel, options.against, *options.baseline)]
        run = Run(sides, names, Inputs(args, None if options.vary else inputs, options.seed, written), written)
        result = run.checked(None, MARGIN, options.max_time, None, options.peaks)
    except Raised as problem:
        raise RuntimeError(f"{options.kernel} raised {problem}") from None
    except (ValueError, RuntimeError, OverflowError, OSError, ImportError) as problem:
        raise_with_place(options.against, problem)
    finally:
        kernel.close()
    module = options.kernel.rpartition(":")[0]
    if module == options.against.rpartition(":")[0]:
        why = f"{module} has the reference, which the kernel could call: not isolated; give it a module of its own"
        result = replace(result, isolated=False, notes=(*result.notes, why))
    print(result)
    if options.json:
        write_json(options.json, result.to_dict())
    return int(result.verdict in ("wrong", "invalid"))
