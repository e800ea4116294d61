"""The commands ``flopscope devices``, and ``flopscope measure``, which times an op or a function of a module."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from flopscope import _core
from flopscope.cli.parser import add_files, add_operands, parsed
from flopscope.support import own_path
from flopscope.support.device import DEVICE_FIELDS, devices, measure_peaks
from flopscope.support.documents import Document, rows
from flopscope.support.files import write_json
from flopscope.support.package import FOLDER
from flopscope.support.suggest import did_you_mean
from flopscope.support.units import plural

DEVICES = Document("devices", "the devices of this machine", (rows("devices", DEVICE_FIELDS),))
WHERE_MODULES_ARE = (
    "MODULE is searched for in PYTHONPATH, then among the installed packages, and last in the current folder, so that "
    "a file there hides no installed package (`python -m flopscope` searches the current folder first). FILE.py is run "
    "with its folder first in the search path, as by `python FILE.py`."
)


def add_devices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--measure", action="store_true", help="measure the peaks and keep the best of all runs")
    parser.add_argument("--reset", action="store_true", help="with --measure: discard the stored peaks")
    add_files(parser, json="the properties and peaks of the devices")
    parser.set_defaults(run=_devices)


def _devices(options: argparse.Namespace) -> None:
    if options.reset and not options.measure:
        raise ValueError("--reset replaces the stored peaks by measured ones: add --measure")
    found = devices()
    for device in found:
        if options.measure:
            measure_peaks(device, force=True, reset=options.reset)
        print(device.report())
    if all(device.kind == "cpu" for device in found):
        try:
            _core.cuda_device_count()
        except RuntimeError as why:
            print(f"no CUDA device: {why}")
    if options.json:
        write_json(options.json, DEVICES.of({"devices": [device.content() for device in found]}))


# measure --------------------------------------------------------------------------------------------------------------


shape = parsed(
    lambda text: tuple(int(part) for part in text.replace("x", ",").split(",")),
    lambda lengths: min(lengths) >= 0,
    "a shape such as 8192,8192",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = WHERE_MODULES_ARE
    text = "an op, or a function without arguments"
    parser.add_argument("what", metavar="OP|MODULE:FUNCTION|FILE.py:FUNCTION", help=text)
    parser.add_argument("shapes", nargs="*", type=shape, metavar="SHAPE", help="shape of each operand, or one for all")
    add_operands(parser, "operands")
    text = "cold empties the caches before each sample (default: cold on CUDA)"
    parser.add_argument("--cache", choices=("cold", "hot"), help=text)
    parser.add_argument("--max-time", type=float, default=1.0, help="seconds of sampling (default: %(default)s)")
    parser.add_argument("--flops", type=float, help="FLOPs of a call, if unknown")
    parser.add_argument("--bytes", type=float, help="bytes that a call moves, if unknown")
    parser.add_argument("--unit", help="with --flops: the compute unit that does them, such as bf16_tensor")
    parser.add_argument("--peaks", choices=("measured", "datasheet", "none"), default="measured", help="base of shares")
    parser.add_argument("--counters", action="store_true", help="also count DRAM traffic, FLOPs, occupancy and stalls")
    parser.add_argument("--stalls", action="store_true", help="also sample at which lines its warps wait, and count")
    add_files(parser, json="the measurement and its samples")
    parser.set_defaults(run=_measure)


def _measure(options: argparse.Namespace) -> None:
    from flopscope.measuring.measuring import measure

    own_path.restore()
    if ":" in options.what:
        if options.shapes:
            raise ValueError(f"{options.what} takes no shapes: the function is called without arguments")
        call, args = function_named(options.what, ()), ()
    else:
        call, args = _op(options)
    names = ("flops", "bytes", "unit", "cache", "max_time", "peaks", "counters", "stalls")
    keywords = {name: getattr(options, name) for name in names}
    try:
        measurement = measure(call, *args, device=options.device, **keywords)
    except (ValueError, RuntimeError, OverflowError, OSError, ImportError) as problem:  # main() passes on all others
        raise_with_place(options.what, problem)
    print(measurement)
    if options.json:
        write_json(options.json, measurement.to_dict(samples=True))


def raise_with_place(what: str, problem: Exception) -> NoReturn:
    """Raise RuntimeError that says where code of the user, named ``what``, has failed; flopscope's errors as they
    are."""
    frames = traceback.extract_tb(problem.__traceback__)
    at: Any = [frame for frame in frames if not frame.filename.startswith("<frozen importlib")][-1]
    if isinstance(problem, SyntaxError):
        at = problem
    elif Path(FOLDER) in Path(at.filename).parents:
        raise problem
    message = f"{what} raised {type(problem).__name__} in {at.filename}, line {at.lineno}: {problem}"
    raise RuntimeError(message) from problem


def function_named(text: str, args: tuple[Any, ...] | None = None) -> Callable[..., Any]:
    """Return a function by MODULE:FUNCTION or FILE.py:FUNCTION. args: what it must take, if they are given."""
    named, _, path = text.rpartition(":")
    if not named or not path:
        raise ValueError(f"{text!r} is not of the form MODULE:FUNCTION or FILE.py:FUNCTION")
    found = _module(named)
    for name in path.split("."):
        if not hasattr(found, name):
            hint = did_you_mean(name, vars(found)) if hasattr(found, "__dict__") else ""
            raise ValueError(f"{named} has no {path}{hint}")
        found = getattr(found, name)
    if not callable(found):
        raise ValueError(f"{text} is not a function, but {found!r}")
    try:
        if args is not None:
            inspect.signature(found).bind(*args)
    except ValueError:  # a builtin without one
        pass
    except TypeError as problem:
        with_these = f"with {plural(len(args or ()), 'argument')}" if args else "without arguments"
        raise ValueError(f"{text} must be callable {with_these}: {problem}") from None
    called: Callable[..., Any] = found
    return called


def _module(named: str) -> Any:
    """Import a module, searched for as WHERE_MODULES_ARE describes."""
    if not named.endswith(".py"):
        here = os.getcwd()
        if here not in sys.path:
            sys.path.append(here)
        parts = named.split(".")
        try:
            if all(map(str.isidentifier, parts)):  # else it is the path of a file
                return importlib.import_module(named)
        except Exception as problem:
            if not isinstance(problem, ModuleNotFoundError) or problem.name not in (named, parts[0]):
                raise_with_place(named, problem)
        raise ImportError(
            f"there is no module {named!r} in PYTHONPATH, the installed packages and the current folder; the name of a "
            "file must end in .py"
        )
    file = os.path.abspath(named)
    if not os.path.isfile(file):
        from flopscope.read.paths import NoFiles

        raise NoFiles(f"no such file: {named}")
    sys.path.insert(0, os.path.dirname(file))
    name = Path(file).stem
    spec = importlib.util.spec_from_file_location("__measured__" if name in sys.modules else name, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise_with_place(named, problem)
    return module


def _op(options: argparse.Namespace) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the op and its arguments, random tensors of the given shapes."""
    from flopscope.measuring.sweep import call_of_op, tensor_arguments

    if options.what not in _core.ops:
        hint = did_you_mean(options.what, _core.ops) or f"; ops are {', '.join(_core.ops)}"
        raise ValueError(f"{options.what!r} is neither an op nor a module:function{hint}")
    if not options.shapes:
        raise ValueError(f"{options.what} needs a shape, as in: flopscope measure {options.what} 4096,4096")
    where = options.device
    if not tensor_arguments(options.what):  # an op without tensor arguments: only the call names its device
        options.device = None
    return call_of_op(options.what, options.shapes, options.dtype, where)
