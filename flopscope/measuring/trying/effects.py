"""How a switch is applied to torch: by its settings, arguments of constructors, methods, calls of modules, or by the
environment, and all but the last undone; and the functions and premises that the rows of the switches name."""

from __future__ import annotations

import functools
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from flopscope.measuring.trying.look import Seen, attention_flags

Call = Callable[..., Any]
QUIET = 100
"""Calls without a new module after which no more are looked for: looking takes time."""


class Setting(NamedTuple):
    """A value of torch: how it is read and written, and which one the switch sets."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    value: Any


class Reach:
    """What was done to torch, and how often each switch had an effect.

    seen: what is known of the program. comparing: its results are to be compared, not timed.
    """

    def __init__(self, torch: Any, seen: Seen, comparing: bool = False) -> None:
        self.torch, self.seen, self.comparing = torch, seen, comparing
        self.hits: Counter[str] = Counter()
        """How often each switch changed something."""
        self.first: list[Callable[[Any, Sequence[Any]], object]] = []
        """Called with each module that the program calls itself, and its arguments, before its first call."""
        self.after: list[Callable[[Any], object]] = []
        """Called with what each call of such a module returned."""
        self._undo: list[Callable[[], object]] = []
        self._settings: list[tuple[str, Setting]] = []

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute until undo()."""
        before = vars(owner).get(name)
        inherited = name not in vars(owner)
        setattr(owner, name, value)
        self._undo.append(lambda: delattr(owner, name) if inherited else setattr(owner, name, before))

    def set(self, name: str, setting: Setting) -> None:
        """Set a value now, and again whenever ``hold`` is called, until undo()."""
        self._settings.append((name, setting))
        self._undo.append(functools.partial(setting.write, setting.read()))
        self.hold()

    def hold(self) -> None:
        """Set the values again that the program has changed."""
        for name, setting in self._settings:
            if setting.read() != setting.value:
                setting.write(setting.value)
                self.hits[name] += 1

    def later(self, act: Callable[[], object]) -> None:
        """Let undo() call a function too."""
        self._undo.append(act)

    def undo(self) -> None:
        """Put everything back, the last first."""
        self._settings.clear()
        while self._undo:
            self._undo.pop()()

    def watch(self) -> Callable[[], None]:
        """Watch the modules that the program calls itself, until no new ones come; return what ends it."""
        owner, known, alive = self.torch.nn.Module, set(), []  # alive: else a number could be that of another later
        original, left, quiet = owner.__call__, threading.Event(), 0

        def __call__(module: Any, *args: Any, **named: Any) -> Any:
            nonlocal quiet
            owner.__call__ = original  # calls within are another module's
            try:
                self.hold()
                quiet += 1
                if id(module) not in known:
                    quiet = 0
                    known.add(id(module))
                    alive.append(module)
                    for act in self.first:
                        act(module, args)
                result = original(module, *args, **named)
                for note in self.after:
                    note(result)
                return result
            finally:
                if quiet >= QUIET:
                    leave()
                if not left.is_set():
                    owner.__call__ = __call__

        def leave() -> None:
            left.set()
            owner.__call__ = original

        owner.__call__ = __call__
        return leave


# The ways -------------------------------------------------------------------------------------------------------------


class Means:
    """A way to apply a switch. It does nothing."""

    level = -1
    """Of several that wrap calls, those of a lower level are the inner ones."""

    def environment(self, seen: Seen, before: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables to set for a process, given those that are set."""
        return {}

    def apply(self, name: str, reach: Reach) -> None:
        """Apply the switch in a process that has just imported torch."""


@dataclass(frozen=True)
class Settings(Means):
    """Values of torch. They are set again if the program changes them during the first steps."""

    settings: Callable[[Any, Seen], Sequence[Setting]]

    def apply(self, name: str, reach: Reach) -> None:
        for setting in self.settings(reach.torch, reach.seen):
            reach.set(name, setting)


@dataclass(frozen=True)
class Constructor(Means):
    """Arguments of constructors. ``change`` gets the arguments by name, with the defaults of those that were left out,
    changes them, and returns whether it did."""

    owners: tuple[str, ...]
    """Names of classes in torch."""
    change: Callable[[Seen, dict[str, Any]], bool]

    def apply(self, name: str, reach: Reach) -> None:
        for path in self.owners:
            owner = attrgetter(path)(reach.torch)
            reach.replace(owner, "__init__", self._changed(name, reach, owner.__init__))

    def _changed(self, name: str, reach: Reach, init: Call) -> Call:
        signature = inspect.signature(init)

        @functools.wraps(init)
        def __init__(*args: Any, **named: Any) -> None:
            try:
                bound = signature.bind(*args, **named)
                bound.apply_defaults()
                given = dict(bound.arguments)
                if self.change(reach.seen, given):
                    reach.hits[name] += 1
                    bound.arguments.update(given)
                    args, named = bound.args, bound.kwargs
            except TypeError:
                pass  # the constructor says what is wrong
            init(*args, **named)

        return __init__


@dataclass(frozen=True)
class Method(Means):
    """Another function in the place of a method. ``make`` gets the method and a function to call at each hit."""

    methods: tuple[str, ...]
    """Their names in torch, as "Tensor.to"."""
    make: Callable[[Call, Callable[[], object]], Call]

    def apply(self, name: str, reach: Reach) -> None:
        def hit() -> None:
            reach.hits[name] += 1

        for path in self.methods:
            owner_path, _, method = path.rpartition(".")
            owner = attrgetter(owner_path)(reach.torch)
            original = getattr(owner, method)
            reach.replace(owner, method, functools.wraps(original)(self.make(original, hit)))


@dataclass(frozen=True)
class Around(Means):
    """The calls of the modules that the program calls itself, or those of a callable.

    ``wrap`` gets the module (None for a callable) and its call, and returns the call to make instead, or None
    to leave a module as it is.
    """

    wrap: Callable[[Reach, Any, Call], Call | None]
    level: int

    def apply(self, name: str, reach: Reach) -> None:
        def switch(module: Any, args: Sequence[Any]) -> None:
            if not any(True for _ in module.parameters()):
                return  # a loss, or a function without state
            # Copies of the module, and what is pickled of it, run its own call.
            before = module._compiled_call_impl
            call = self.wrap(reach, module, before or module._call_impl)
            if call is not None:
                module._compiled_call_impl = call
                reach.later(lambda: setattr(module, "_compiled_call_impl", before))
                reach.hits[name] += 1

        reach.first.append(switch)


@dataclass(frozen=True)
class Variables(Means):
    """Environment variables. ``variables`` gets what was seen and the variables before."""

    variables: Callable[[Seen, Mapping[str, str]], Mapping[str, str]]

    def environment(self, seen: Seen, before: Mapping[str, str]) -> dict[str, str]:
        return dict(self.variables(seen, before))


def attribute(owner: Any, name: str, value: Any) -> Setting:
    """Return the setting that is an attribute."""
    return Setting(functools.partial(getattr, owner, name), functools.partial(setattr, owner, name), value)


def within(context: Callable[[], AbstractContextManager[Any]], call: Call, result: Call | None = None) -> Call:
    """Return a call that runs inside a context; ``result`` changes what it returns."""

    @functools.wraps(call)
    def inside(*args: Any, **named: Any) -> Any:
        with context():
            found = call(*args, **named)
            return found if result is None else result(found)

    return inside


# Premises -------------------------------------------------------------------------------------------------------------


class Need(NamedTuple):
    """A premise of a switch."""

    holds: Callable[[Seen], bool]
    why_not: str
    """Why the switch does not apply where it does not hold."""


def loads(seen: Seen, holds: Callable[[Mapping[str, Any]], bool]) -> bool:
    return any(holds(one) for one in seen.loaders)


def loops_over_parameters(seen: Seen) -> bool:
    """Return whether an optimizer loops over its parameters, which is torch's default on CPUs alone."""
    return any(
        not one["fused"] and (one["foreach"] is False if seen.cuda else not one["foreach"]) for one in seen.optimizers
    )


FUSED = ("Adam", "AdamW", "SGD")
"""Optimizers with a fused step on GPUs and on CPUs."""
FOREACH = (*FUSED, "Adadelta", "Adagrad", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")
"""Optimizers with a step over lists of parameters."""
LOADERS = ("utils.data.DataLoader",)

TORCH = (Need(lambda seen: bool(seen.torch), "the program does not use torch"),)
CUDA = (*TORCH, Need(lambda seen: seen.cuda, "the program uses no GPU by torch"))
TF32_CORES = (*CUDA, Need(lambda seen: not seen.hip and seen.capability >= 80, "the GPU has no TF32"))
CPU = (*TORCH, Need(lambda seen: not seen.cuda, "the program computes on a GPU"))
IDLE_CPUS = (*CPU, Need(lambda seen: seen.threads < seen.cpus, "torch uses every CPU already"))
MODULES = (*TORCH, Need(lambda seen: seen.modules > 0, "the program calls no module with parameters"))
CONVOLUTIONS = Need(lambda seen: seen.convolutions, "its modules have no convolutions")
FLAT_IMAGES = Need(lambda seen: seen.images, "its convolutions get no 4-d tensors, or such in channels_last already")
REFUSED_ATTENTION = Need(lambda seen: not seen.fused_attention, "every back end is allowed already")
DETERMINISTIC = Need(lambda seen: seen.deterministic, "deterministic algorithms are off")
FLOAT32 = Need(lambda seen: seen.float32, "its modules have no float32 parameters")
NO_AUTOCAST = Need(lambda seen: not seen.autocast, "it uses autocast already")
BF16_CPU = Need(lambda seen: seen.cuda or seen.bf16_cpu, "this CPU has no instructions for bfloat16")
BF16_GPU = Need(
    lambda seen: not seen.cuda or seen.hip or seen.capability >= 80, "the GPU has no tensor cores for bfloat16"
)
NOT_COMPILED = Need(lambda seen: not seen.compiled, "it uses torch.compile already")
COMPILER = Need(lambda seen: seen.compiler, "torch.compile needs Triton on a GPU, and a C++ compiler (g++) on a CPU")
NO_TRAINING = Need(lambda seen: not seen.trains, "the program trains")
NO_INFERENCE_MODE = Need(lambda seen: not seen.inference, "it uses inference mode already")
UNFUSED = Need(
    lambda seen: any(one["name"] in FUSED and not one["fused"] for one in seen.optimizers),
    "there is no unfused Adam, AdamW or SGD of torch.optim",
)
SINGLE = Need(loops_over_parameters, "there is no optimizer that loops over its parameters")
ZEROED = Need(lambda seen: seen.zeroed, "the program does not call zero_grad(set_to_none=False)")
LOADER = Need(lambda seen: bool(seen.loaders), "the program has no DataLoader")
LOADS_IN_MAIN = Need(
    lambda seen: loads(seen, lambda one: not one["num_workers"] and not one["iterable"]),
    "no DataLoader of a dataset with indices loads in the program itself",
)
WORKERS = Need(lambda seen: loads(seen, lambda one: bool(one["num_workers"])), "no DataLoader has worker processes")
PAGEABLE = Need(lambda seen: loads(seen, lambda one: not one["pin_memory"]), "its batches are in pinned memory already")
PARALLEL = Need(lambda seen: seen.parallel, "the program does not use DistributedDataParallel")
JAX = (
    Need(lambda seen: seen.jax, "the program does not use JAX"),
    Need(lambda seen: seen.jax_gpu, "JAX computes on no GPU here"),
)

# Settings -------------------------------------------------------------------------------------------------------------


def tf32_products(torch: Any, seen: Seen) -> Sequence[Setting]:
    return [Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high")]


def cudnn(name: str, value: bool) -> Callable[[Any, Seen], Sequence[Setting]]:
    return lambda torch, seen: [attribute(torch.backends.cudnn, name, value)]


def fused_attention(torch: Any, seen: Seen) -> Sequence[Setting]:
    flags = attention_flags(torch)
    writes = [getattr(torch.backends.cuda, f"enable_{read.__name__.removesuffix('_enabled')}") for read in flags]
    return [Setting(read, write, True) for read, write in zip(flags, writes, strict=True)]


def nondeterministic(torch: Any, seen: Seen) -> Sequence[Setting]:
    def write(value: bool) -> None:
        torch.use_deterministic_algorithms(value, warn_only=torch.is_deterministic_algorithms_warn_only_enabled())

    everywhere = Setting(torch.are_deterministic_algorithms_enabled, write, False)
    return [everywhere, attribute(torch.backends.cudnn, "deterministic", False)]


def all_threads(torch: Any, seen: Seen) -> Sequence[Setting]:
    return [Setting(torch.get_num_threads, torch.set_num_threads, seen.cpus)]


# Calls of modules -----------------------------------------------------------------------------------------------------


def autocast(reach: Reach, module: Any, call: Call) -> Call:
    torch, device = reach.torch, "cuda" if reach.seen.cuda else "cpu"
    return within(lambda: torch.autocast(device, dtype=torch.bfloat16), call, lambda found: widened(torch, found))


def widened(torch: Any, result: Any) -> Any:
    """Return a result in float32, as the loss outside of autocast needs it."""
    if isinstance(result, torch.Tensor):
        return result.float() if result.dtype == torch.bfloat16 else result
    if type(result) in (list, tuple):
        return type(result)(widened(torch, one) for one in result)
    if type(result) is dict:
        return {name: widened(torch, one) for name, one in result.items()}
    return result


def channels_last(reach: Reach, module: Any, call: Call) -> Call | None:
    torch = reach.torch
    if module is None or not any(isinstance(one, torch.nn.Conv2d) for one in module.modules()):
        return None
    module.to(memory_format=torch.channels_last)
    reach.later(lambda: module.to(memory_format=torch.contiguous_format))

    def image(one: Any) -> Any:
        is_image = isinstance(one, torch.Tensor) and one.dim() == 4 and one.is_floating_point()
        return one.contiguous(memory_format=torch.channels_last) if is_image else one

    def laid_out(*args: Any, **named: Any) -> Any:
        return call(*map(image, args), **{name: image(one) for name, one in named.items()})

    return laid_out


def compiled(mode: str) -> Callable[[Reach, Any, Call], Call]:
    def wrap(reach: Reach, module: Any, call: Call) -> Call:
        how: dict[str, Any] = {"mode": mode}
        if reach.comparing:
            from torch import _inductor  # the same random numbers as without it

            how = {"options": {**_inductor.list_mode_options(mode), "fallback_random": True}}
        done: Call = reach.torch.compile(call, **how)
        return done

    return wrap


def in_inference_mode(reach: Reach, module: Any, call: Call) -> Call:
    return within(reach.torch.inference_mode, call)


# Optimizers -----------------------------------------------------------------------------------------------------------


def optimizers(*names: str) -> tuple[str, ...]:
    return tuple(f"optim.{name}" for name in names)


def fuse(seen: Seen, given: dict[str, Any]) -> bool:
    if given.get("fused") or given.get("differentiable"):
        return False
    given.update(fused=True, foreach=None)
    return True


def by_lists(seen: Seen, given: dict[str, Any]) -> bool:
    if given.get("foreach") or given.get("fused") or given.get("differentiable"):
        return False
    given["foreach"] = True
    return True


def dropping(original: Call, hit: Callable[[], object]) -> Call:
    def zero_grad(owner: Any, set_to_none: bool = True) -> None:
        if not set_to_none:
            hit()
        original(owner, True)

    return zero_grad


# Data -----------------------------------------------------------------------------------------------------------------

MOST_WORKERS = 8


def workers(seen: Seen) -> int:
    """Return the worker processes to give a DataLoader: one per CPU but the program's own, at least one."""
    return max(1, min(MOST_WORKERS, seen.cpus - 1))


def reached_by_workers(seen: Seen, saving: float) -> float:
    """Return what workers gain of the wait for data, in percent of a step: they take their part of the time for each
    batch, and the step waits for that if it is longer than the rest."""
    wait = saving / 100
    return 100 * (1 - max(1 - wait, wait / workers(seen)))


def start_workers(seen: Seen, given: dict[str, Any]) -> bool:
    from torch.utils.data import IterableDataset

    if given["num_workers"] or issubclass(type(given["dataset"]), IterableDataset):
        return False
    given.update(num_workers=workers(seen), persistent_workers=True)
    return True


def pin(seen: Seen, given: dict[str, Any]) -> bool:
    changes = not given["pin_memory"]
    given["pin_memory"] = True
    return changes


def prefetch(seen: Seen, given: dict[str, Any]) -> bool:
    if not given["num_workers"]:
        return False
    given.update(prefetch_factor=max(8, 2 * (given["prefetch_factor"] or 2)), persistent_workers=True)
    return True


def in_background(original: Call, hit: Callable[[], object]) -> Call:
    def copy(tensor: Any, *args: Any, **named: Any) -> Any:
        stated = "non_blocking" in named or any(isinstance(one, bool) for one in args)
        if not stated and tensor.device.type == "cpu" and tensor.is_pinned():
            hit()
            named = {**named, "non_blocking": True}
        return original(tensor, *args, **named)

    return copy


# Processes and the environment ----------------------------------------------------------------------------------------


def larger_buckets(seen: Seen, given: dict[str, Any]) -> bool:
    given.update(bucket_cap_mb=100, gradient_as_bucket_view=True)
    return True


def fixed(**variables: str) -> Callable[[Seen, Mapping[str, str]], Mapping[str, str]]:
    return lambda seen, before: variables


def expandable_segments(seen: Seen, before: Mapping[str, str]) -> Mapping[str, str]:
    name = "PYTORCH_CUDA_ALLOC_CONF"
    known = [part for part in before.get(name, "").split(",") if part and not part.startswith("expandable_segments")]
    return {name: ",".join([*known, "expandable_segments:True"])}


def thread_variables(seen: Seen, before: Mapping[str, str]) -> Mapping[str, str]:
    return {"OMP_NUM_THREADS": str(seen.cpus)}


def xla_flag(flag: str) -> Callable[[Seen, Mapping[str, str]], Mapping[str, str]]:
    return lambda seen, before: {"XLA_FLAGS": " ".join([*before.get("XLA_FLAGS", "").split(), flag])}
