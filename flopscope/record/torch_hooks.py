"""What ``flopscope run`` needs of torch, and where it hooks into it."""

from __future__ import annotations

import functools
import gc
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from flopscope.record.watching import has_gpu
from flopscope.results.categories import COLLECTION
from flopscope.support.imports import replace


def all_threads_setting(torch: Any) -> Any:
    """Return torch's setting to record all threads, or None if this torch has none."""
    try:
        return torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except (AttributeError, TypeError):
        return None


@contextmanager
def quiet_start(torch: Any) -> Iterator[None]:
    """Start torch's profiler without its messages on stderr, such as "USDT: … profiler_start".

    The environment decides at the first start. With a GPU, the messages may be about CUPTI, and stay.
    """
    name = "KINETO_LOG_LEVEL"
    if name in os.environ or uses_cuda(torch):
        yield
        return
    os.environ[name] = "6"  # above all that torch has
    try:
        yield
    finally:
        os.environ.pop(name, None)


@contextmanager
def without_inductor(torch: Any) -> Iterator[None]:
    """Keep torch from importing torch._inductor, which takes as long as torch itself, on this thread.

    torch's profiler imports it at its start to read a setting, triton.cudagraphs, which is false unless the program has
    imported it before, or the environment sets it.
    """
    lazily, here = vars(torch).get("__getattr__"), threading.get_ident()
    if lazily is None or "torch._inductor" in sys.modules or "TORCHINDUCTOR_CUDAGRAPHS" in os.environ:
        yield
        return

    def __getattr__(name: str) -> Any:
        if name == "_inductor" and threading.get_ident() == here:
            raise AttributeError(name)
        return lazily(name)

    restore = replace(torch, "__getattr__", __getattr__)
    try:
        yield
    finally:
        restore()


def starts_cuda(torch: Any) -> bool:
    """Return whether torch's profiler would initialize CUDA before the program does.

    The program could then neither choose devices by CUDA_VISIBLE_DEVICES nor use CUDA in processes that it forks.
    """
    has_library = torch.version.cuda is not None or getattr(torch.version, "hip", None) is not None
    return has_library and has_gpu() and not torch.cuda.is_initialized()


def uses_cuda(torch: Any) -> bool:
    """Return whether this torch may use a GPU of NVIDIA."""
    return torch.version.cuda is not None and has_gpu()


def after_cuda(torch: Any, act: Callable[[], object]) -> None:
    """Call ``act`` as soon as torch has initialized CUDA, for the first time."""
    if torch.cuda.is_initialized():
        act()
        return
    done = threading.Event()

    def once() -> None:
        if not done.is_set():
            done.set()
            act()

    _after_init(torch, once)


def when_used(torch: Any, act: Callable[[], object]) -> Callable[[], None]:
    """Call ``act`` as soon as torch has initialized CUDA or a module is called. Return a function that gives it up."""

    def called(module: Any, inputs: Any) -> None:
        act()

    hooks = ExitStack()
    hooks.callback(torch.nn.modules.module.register_module_forward_pre_hook(called).remove)
    hooks.callback(_after_init(torch, act))
    return hooks.close


def _after_init(torch: Any, act: Callable[[], object]) -> Callable[[], None]:
    """Call a function after each initialization of CUDA. Return a function that ends this."""
    initialize = torch.cuda._lazy_init

    @functools.wraps(initialize)
    def _lazy_init() -> None:
        initialize()
        act()

    return replace(torch.cuda, "_lazy_init", _lazy_init)


# Arguments of the kernels that Inductor launches, in recordings of all threads ----------------------------------------
#
# torch's profiler gets them from ``_RecordFunctionFast``, which drops them if all threads are recorded: it asks for the
# profile of its own thread. So a call without effect, ``flopscope::arguments``, passes them to the profiler within each
# such range. Readers of the trace merge it into the op around it.

_TYPES = {"t": "Tensor", "s": "Scalar", "n": "Tensor?"}
_known: dict[str, Callable[..., object]] = {}  # the overloads of the call, by the kinds of its arguments
_libraries: list[Any] = []  # that define them
_defining = threading.Lock()


def _call(torch: Any, arguments: Any) -> None:
    """Call the overload for arguments of these kinds, which is defined on first use."""
    kinds = "".join(_kind(torch, argument) for argument in arguments)
    if kinds not in _known:
        with _defining:
            _define(torch, kinds)
    _known[kinds](*(None if kind == "n" else argument for kind, argument in zip(kinds, arguments, strict=True)))


def _kind(torch: Any, argument: object) -> str:
    if isinstance(argument, torch.Tensor):
        return "t"
    return "s" if isinstance(argument, (int, float)) else "n"


def _define(torch: Any, kinds: str) -> None:
    if kinds in _known:
        return
    if not _libraries:
        _libraries.append(torch.library.Library("flopscope", "FRAGMENT"))
    parameters = ", ".join(f"{_TYPES[kind]} a{place}" for place, kind in enumerate(kinds))
    _libraries[0].define(f"arguments.{kinds}({parameters}) -> ()")
    _libraries[0].impl(f"arguments.{kinds}", _nothing, "CompositeImplicitAutograd")
    _known[kinds] = getattr(torch.ops.flopscope.arguments, kinds)


def _nothing(*_: object) -> None: ...


def name_rank(prof: Any, known: Mapping[str, Any] | None) -> None:
    """Put the rank into the trace of a profile, which torch does only if its process group existed at the start."""
    info = known
    with suppress(Exception):  # flopscope's profile knows of none
        info = prof._get_distributed_info() or known
    if info is not None:
        with suppress(Exception):
            prof.add_metadata_json("distributedInfo", json.dumps(info, default=str))


def wait(torch: Any) -> None:
    with suppress(Exception):  # after an error of it, or a torch without CUDA
        torch._C._cuda_synchronize()


def record_collections(torch: Any) -> Callable[[], object]:
    """Record a range around each collection of Python's oldest objects until the returned function is called."""
    begun: list[Any] = []

    def watch(phase: str, facts: Any) -> None:
        if phase == "start" and facts["generation"] == 2:
            begun.append(torch.autograd.profiler.record_function(COLLECTION))
            begun[-1].__enter__()
        elif phase == "stop" and begun:
            begun.pop().__exit__(None, None, None)

    gc.callbacks.append(watch)
    return functools.partial(gc.callbacks.remove, watch)


def record_arguments(torch: Any) -> Callable[[], None]:
    """Let ranges with arguments record them until the function that is returned is called."""
    module = torch._C._profiler
    fast: Any = getattr(module, "_RecordFunctionFast", None)
    if fast is None:
        return _nothing
    active = True

    class Range:
        """Like _RecordFunctionFast, with the arguments in a call of their own."""

        def __init__(self, name: str, input_values: Any = (), keyword_values: Any = None) -> None:
            self._range = fast(name, input_values or (), keyword_values or {})
            self._arguments = input_values

        def __enter__(self) -> Any:
            entered = self._range.__enter__()
            if self._arguments and active:
                with suppress(Exception):  # of torch, which must not end the program: these arguments are unknown then
                    _call(torch, self._arguments)
            return entered

        def __exit__(self, *exception: Any) -> Any:
            return self._range.__exit__(*exception)

    def end() -> None:
        nonlocal active
        active = False
        restore()

    restore = replace(module, "_RecordFunctionFast", Range)
    return end
