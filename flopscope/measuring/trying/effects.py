"""How a switch is applied to torch and undone, by settings, around calls of modules or around its functions; and the
functions and premises that the rows of the switches name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from flopscope.measuring.trying.look import Seen

Call = Callable[..., Any]


class Setting(NamedTuple):
    """A value of torch: how it is read and written, and which one the switch sets."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    value: Any


class Reach:
    """What was done to torch, and how often the switch had an effect. seen: what is known of the program."""

    def __init__(self, torch: Any, seen: Seen) -> None:
        self.torch, self.seen = torch, seen
        self.hits = 0
        """How often the switch changed something."""
        self.first: list[Callable[[Any, Sequence[Any]], object]] = []
        """Called with each module that the program calls itself, and its arguments, before its first call."""
        self.after: list[Callable[[Any], object]] = []
        """Called with what each call of such a module returned."""
        self._undo: list[Callable[[], object]] = []
        self._settings: list[Setting] = []
        self._watches = False

    def hit(self) -> None:
        """Note an effect."""
        self.hits += 1

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute until undo()."""
        before = vars(owner).get(name)
        inherited = name not in vars(owner)
        setattr(owner, name, value)
        self._undo.append(lambda: delattr(owner, name) if inherited else setattr(owner, name, before))

    def wrap(self, owner: Any, name: str, around: Call) -> None:
        """Call ``around`` with a function of torch and its arguments in the place of it, until undo()."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **named: Any) -> Any:
            return around(original, *args, **named)

        self.replace(owner, name, wrapped)

    def set(self, settings: Sequence[Setting]) -> None:
        """Set values now, and again whenever ``hold`` is called, until undo()."""
        self._settings += settings
        self._undo += [functools.partial(one.write, one.read()) for one in settings]
        self.hold()

    def hold(self) -> None:
        """Set the values again that the program has changed."""
        for setting in self._settings:
            if setting.read() != setting.value:
                setting.write(setting.value)
                self.hit()

    def later(self, act: Callable[[], object]) -> None:
        """Let undo() call a function too."""
        self._undo.append(act)

    def undo(self) -> None:
        """Put everything back, the last first."""
        self._settings.clear()
        while self._undo:
            self._undo.pop()()

    def watch(self) -> None:
        """Watch the modules that the program calls itself, until leave() or undo()."""
        owner, known = self.torch.nn.Module, {}  # alive: else a number could be that of another later
        original, self._watches = owner.__call__, True

        def __call__(module: Any, *args: Any, **named: Any) -> Any:
            owner.__call__ = original  # calls within are another module's
            try:
                self.hold()
                if id(module) not in known:
                    known[id(module)] = module
                    for act in self.first:
                        act(module, args)
                result = original(module, *args, **named)
                for note in self.after:
                    note(result)
                return result
            finally:
                if self._watches:
                    owner.__call__ = __call__

        self.replace(owner, "__call__", __call__)
        self.later(self.leave)
        self._original_call = original

    def leave(self) -> None:
        """Watch no more modules; what wraps their calls stays."""
        self._watches = False
        self.torch.nn.Module.__call__ = self._original_call


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


def around_modules(reach: Reach, wrap: Callable[[Reach, Any, Call], Call | None]) -> None:
    """Wrap the calls of the modules that the program calls itself. ``wrap`` gets the module and its call, and returns
    the call to make instead, or None to leave a module as it is."""

    def switch(module: Any, args: Sequence[Any]) -> None:
        if not any(True for _ in module.parameters()):
            return  # a loss, or a function without state
        # Copies of the module, and what is pickled of it, run its own call.
        before = module._compiled_call_impl
        call = wrap(reach, module, before or module._call_impl)
        if call is not None:
            module._compiled_call_impl = call
            reach.later(lambda: setattr(module, "_compiled_call_impl", before))
            reach.hit()

    reach.first.append(switch)


def with_arguments(change: Callable[[Seen, dict[str, Any]], bool]) -> Callable[[Reach], Call]:
    """Return what makes a wrapper of a constructor. ``change`` gets its arguments by name, with the defaults of those
    that were left out, changes them, and returns whether it did."""

    def wrapper(reach: Reach) -> Call:
        def constructed(init: Call, *args: Any, **named: Any) -> None:
            try:
                bound = inspect.signature(init).bind(*args, **named)
                bound.apply_defaults()
                given = dict(bound.arguments)
                if change(reach.seen, given):
                    reach.hit()
                    bound.arguments.update(given)
                    args, named = bound.args, bound.kwargs
            except TypeError:
                pass  # the constructor says what is wrong
            init(*args, **named)

        return constructed

    return wrapper


# Premises -------------------------------------------------------------------------------------------------------------


class Need(NamedTuple):
    """A premise of a switch, and why the switch does not apply where it does not hold."""

    holds: Callable[[Seen], Any]
    why_not: str


FUSED = ("Adam", "AdamW", "SGD")
"""Optimizers with a fused step on GPUs and on CPUs."""
TORCH = (Need(lambda seen: seen.torch, "the program does not use torch"),)
CUDA = (*TORCH, Need(lambda seen: seen.cuda, "the program uses no GPU by torch"))
TF32_CORES = (*CUDA, Need(lambda seen: seen.has_tf32, "the GPU has no TF32"))
IDLE_CPUS = (
    *TORCH,
    Need(lambda seen: not seen.cuda, "the program computes on a GPU"),
    Need(lambda seen: seen.threads < seen.cpus, "torch uses every CPU already"),
)
MODULES = (*TORCH, Need(lambda seen: seen.modules > 0, "the program calls no module with parameters"))
CONVOLUTIONS = Need(lambda seen: seen.convolutions, "its modules have no convolutions")
NOT_TUNED = Need(lambda seen: not seen.tuned, "it is on already")
FLAT_IMAGES = Need(lambda seen: seen.images, "its convolutions get no 4-d tensors, or such in channels_last already")
DETERMINISTIC = Need(lambda seen: seen.deterministic, "deterministic algorithms are off")
FLOAT32 = Need(lambda seen: seen.float32, "its modules have no float32 parameters")
NO_AUTOCAST = Need(lambda seen: not seen.autocast, "it uses autocast already")
HAS_BF16 = Need(lambda seen: seen.has_bf16, "the GPU, or the CPU of a program without, has no products in bfloat16")
COMPILES = (
    *MODULES,
    Need(lambda seen: not seen.compiled, "it uses torch.compile already"),
    Need(lambda seen: seen.compiler, "torch.compile needs Triton on a GPU, and a C++ compiler (g++) on a CPU"),
)
NO_TRAINING = Need(lambda seen: not seen.trains, "the program trains")
GRADIENTS = Need(lambda seen: seen.gradients, "it calls its modules without gradients already")
UNFUSED = Need(
    lambda seen: any(one["name"] in FUSED and not one["fused"] for one in seen.optimizers),
    "there is no unfused Adam, AdamW or SGD of torch.optim",
)
ZEROED = Need(lambda seen: seen.zeroed, "the program does not call zero_grad(set_to_none=False)")
LOADER = Need(lambda seen: seen.loaders, "the program has no DataLoader")
LOADS_IN_MAIN = Need(
    lambda seen: any(not one["num_workers"] and not one["iterable"] for one in seen.loaders),
    "no DataLoader of a dataset with indices loads in the program itself",
)
PARALLEL = Need(lambda seen: seen.parallel, "the program does not use DistributedDataParallel")

# Settings -------------------------------------------------------------------------------------------------------------


def cudnn(name: str, value: bool) -> Callable[[Any, Seen], Sequence[Setting]]:
    return lambda torch, seen: [attribute(torch.backends.cudnn, name, value)]


def nondeterministic(torch: Any, seen: Seen) -> Sequence[Setting]:
    def write(value: bool) -> None:
        torch.use_deterministic_algorithms(value, warn_only=torch.is_deterministic_algorithms_warn_only_enabled())

    everywhere = Setting(torch.are_deterministic_algorithms_enabled, write, False)
    return [everywhere, attribute(torch.backends.cudnn, "deterministic", False)]


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
        done: Call = reach.torch.compile(call, mode=mode)
        return done

    return wrap


# Optimizers -----------------------------------------------------------------------------------------------------------


def fuse(seen: Seen, given: dict[str, Any]) -> bool:
    if given.get("fused") or given.get("differentiable"):
        return False
    given.update(fused=True, foreach=None)
    return True


def dropping(reach: Reach) -> Call:
    def zero_grad(original: Call, owner: Any, set_to_none: bool = True) -> None:
        if not set_to_none:
            reach.hit()
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


def in_background(reach: Reach) -> Call:
    def copy(original: Call, tensor: Any, *args: Any, **named: Any) -> Any:
        stated = "non_blocking" in named or any(isinstance(one, bool) for one in args)
        if not stated and tensor.device.type == "cpu" and tensor.is_pinned():
            reach.hit()
            named = {**named, "non_blocking": True}
        return original(tensor, *args, **named)

    return copy
