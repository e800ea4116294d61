"""The changes that can be tried without editing a program: one row each, how a row is applied to torch, by
settings, around calls of modules or around its functions, and the functions that rows name."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from flopscope.measuring.trying.look import Seen
from flopscope.support.suggest import did_you_mean

Call = Callable[..., Any]

EXACT, TF32, BF16 = 1e-4, 5e-3, 2e-2
"""Relative differences of the first losses that come with another order of float32 sums (some hundred of their units in
the last place, as steps amplify them), with products of inputs of 10 bits, and with 8 bits (ten units of each)."""


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
        self.first: list[Callable[[Any], object]] = []
        """Called with each module with parameters that the program calls itself, before its first call."""
        self.after: list[Callable[[Any], object]] = []
        """Called with what each call of such a module returned."""
        self._settings: list[Setting] = []
        self._watches = False
        self._original_call = torch.nn.Module.__call__

    def wrap(self, owner: Any, name: str, around: Call) -> None:
        """Call ``around`` with a function of torch and its arguments in the place of it."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **named: Any) -> Any:
            return around(original, *args, **named)

        setattr(owner, name, wrapped)

    def set(self, settings: Sequence[Setting]) -> None:
        """Set values now, and again whenever ``hold`` is called."""
        self._settings += settings
        self.hold()

    def hold(self) -> None:
        """Set the values again that the program has changed."""
        for setting in self._settings:
            if setting.read() != setting.value:
                setting.write(setting.value)
                self.hits += 1

    def watch(self) -> None:
        """Watch the modules that the program calls itself, until leave()."""
        owner, known = self.torch.nn.Module, {}  # alive: else a number could be that of another later
        original, self._watches = self._original_call, True

        def __call__(module: Any, *args: Any, **named: Any) -> Any:
            owner.__call__ = original  # calls within are another module's
            try:
                self.hold()
                if id(module) not in known:
                    known[id(module)] = module
                    for act in self.first if any(True for _ in module.parameters()) else ():
                        act(module)
                result = original(module, *args, **named)
                for note in self.after:
                    note(result)
                return result
            finally:
                if self._watches:
                    owner.__call__ = __call__

        owner.__call__ = __call__

    def leave(self) -> None:
        """Watch no more modules; what wraps their calls stays."""
        self._watches = False
        self.torch.nn.Module.__call__ = self._original_call


def attribute(owner: Any, name: str, value: Any) -> Setting:
    return Setting(functools.partial(getattr, owner, name), functools.partial(setattr, owner, name), value)


# Settings -------------------------------------------------------------------------------------------------------------


def tf32(torch: Any, seen: Seen) -> Sequence[Setting]:
    products = Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high")
    return [products, attribute(torch.backends.cudnn, "allow_tf32", True)]


# Calls of modules -----------------------------------------------------------------------------------------------------


def autocast(reach: Reach, module: Any, call: Call) -> Call:
    """Return results in float32, as the loss outside of autocast needs them."""
    torch = reach.torch

    def widened(one: Any) -> Any:
        return one.float() if isinstance(one, torch.Tensor) and one.dtype == torch.bfloat16 else one

    inner = torch.autocast("cuda" if reach.seen.cuda else "cpu", dtype=torch.bfloat16)(call)
    return lambda *args, **named: torch.utils._pytree.tree_map(widened, inner(*args, **named))


def channels_last(reach: Reach, module: Any, call: Call) -> Call | None:
    torch = reach.torch
    if not any(isinstance(one, torch.nn.Conv2d) for one in module.modules()):
        return None
    module.to(memory_format=torch.channels_last)

    def image(one: Any) -> Any:
        is_image = isinstance(one, torch.Tensor) and one.dim() == 4 and one.is_floating_point()
        return one.contiguous(memory_format=torch.channels_last) if is_image else one

    return lambda *args, **named: call(*map(image, args), **{name: image(one) for name, one in named.items()})


# Functions ------------------------------------------------------------------------------------------------------------


def fuse(reach: Reach, init: Call, optimizer: Any, *args: Any, **named: Any) -> None:
    if not named.get("fused") and not named.get("differentiable"):
        reach.hits += 1
        named.update(fused=True, foreach=None)
    init(optimizer, *args, **named)


def dropping(reach: Reach, original: Call, owner: Any, set_to_none: bool = True) -> None:
    reach.hits += not set_to_none
    original(owner, True)


def start_workers(reach: Reach, init: Call, loader: Any, dataset: Any, *args: Any, **named: Any) -> None:
    states = len(args) > 4 or named.get("num_workers")  # the fifth after the dataset
    if not states and not issubclass(type(dataset), reach.torch.utils.data.IterableDataset):
        reach.hits += 1
        named.update(num_workers=max(1, min(8, reach.seen.cpus - 1)), persistent_workers=True)
    init(loader, dataset, *args, **named)


# Rows ----------------------------------------------------------------------------------------------------------------

NEEDS: Mapping[str, tuple[Callable[[Seen], Any], str]] = {
    "torch": (lambda seen: seen.torch, "the program does not use torch"),
    "cuda": (lambda seen: seen.cuda, "the program uses no GPU by torch"),
    "modules": (lambda seen: seen.modules, "the program calls no module with parameters"),
    "convolutions": (lambda seen: seen.convolutions, "its modules have no convolutions"),
    "zeroed": (lambda seen: seen.zeroed, "the program does not call zero_grad(set_to_none=False)"),
    "idle CPUs": (
        lambda seen: not seen.cuda and seen.threads < seen.cpus,
        "the program computes on a GPU, or torch uses every CPU already",
    ),
    "unused gradients": (
        lambda seen: seen.gradients and not seen.trains,
        "the program trains, or calls its modules without gradients already",
    ),
}
"""Premises of switches, and why a switch does not apply where they do not hold. What cannot be seen beforehand is left
to the runs: a switch that finds nothing to change is not timed."""


@dataclass(frozen=True)
class Switch:
    """A change that can be switched on from outside a program."""

    name: str
    what: str
    needs: tuple[str, ...]
    """Its premises, of NEEDS."""
    effect: str
    """What else it may change: results, memory."""
    lines: str
    """What to write into the program."""
    source: str
    rule: str = ""
    tolerance: float = EXACT
    """Relative difference of losses up to which results count as kept."""
    shown: bool = False
    """Its premises propose it, without advice."""
    group: str = ""
    """Of switches of a group, only one can be kept."""
    draws: bool = False
    """Random numbers of the program differ with it."""
    settings: Callable[[Any, Seen], Sequence[Setting]] | None = None
    """Values of torch. They are set again if the program changes them during the first steps."""
    calls: Callable[[Reach, Any, Call], Call | None] | None = None
    """What wraps the calls of modules that the program calls itself. It gets the module and its call, and returns the
    call to make instead, or None to leave a module as it is."""
    functions: Mapping[str, Call] = field(default_factory=dict)
    """Functions of torch, and what is called in the place of each, with the function and its arguments."""

    def apply(self, reach: Reach) -> None:
        """Apply it in a process that has just imported torch."""
        if self.settings is not None:
            reach.set(self.settings(reach.torch, reach.seen))
        if self.calls is not None:
            reach.first.append(functools.partial(self._around, reach))
        for path, wrapper in self.functions.items():
            owner, _, name = path.rpartition(".")
            reach.wrap(attrgetter(owner)(reach.torch), name, functools.partial(wrapper, reach))

    def _around(self, reach: Reach, module: Any) -> None:
        """Wrap the call of a module. Copies of it, and what is pickled of it, run its own."""
        call = self.calls(reach, module, module._compiled_call_impl or module._call_impl) if self.calls else None
        if call is not None:
            module._compiled_call_impl = call
            reach.hits += 1

    def why_not(self, seen: Seen) -> str:
        """Return why it does not apply to a program; "" if it does."""
        needed = map(NEEDS.__getitem__, ("torch", *self.needs))
        return next((why_not for holds, why_not in needed if not holds(seen)), "")

    def tolerance_in(self, seen: Seen) -> float:
        """Return the tolerance for the program that was seen, whose own products may round as much; NaN if its results
        differ by random numbers."""
        if self.draws and seen.draws:
            return math.nan
        return max(self.tolerance, TF32 if seen.tf32 else 0.0, BF16 if seen.half else 0.0)


DOCS = "https://docs.pytorch.org/docs/stable"
TUNING = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"

_ROWS = (
    Switch(
        "tf32",
        "TF32 in products and convolutions",
        rule="tf32",
        needs=("cuda",),
        settings=tf32,
        effect="products and convolutions round their float32 inputs to 10 bits of mantissa",
        tolerance=TF32,
        lines='torch.set_float32_matmul_precision("high")\ntorch.backends.cudnn.allow_tf32 = True',
        source=f"{DOCS}/generated/torch.set_float32_matmul_precision.html",
    ),
    Switch(
        "autocast",
        "bfloat16 by autocast",
        rule="low_precision",
        needs=("modules",),
        calls=autocast,
        effect="products and convolutions in 8 bits of mantissa; less memory for activations",
        tolerance=BF16,
        lines="with torch.autocast(device, dtype=torch.bfloat16):\n    loss = ...  # the forward pass and the loss",
        source=f"{DOCS}/amp.html",
    ),
    Switch(
        "cudnn_benchmark",
        "cuDNN's search for the fastest kernels",
        needs=("cuda", "convolutions"),
        shown=True,
        settings=lambda torch, seen: [attribute(torch.backends.cudnn, "benchmark", True)],
        effect="another order of sums; each new shape takes longer once",
        tolerance=TF32,
        lines="torch.backends.cudnn.benchmark = True",
        source=f"{TUNING}#enable-cudnn-auto-tuner",
    ),
    Switch(
        "channels_last",
        "channels_last for images and convolutions",
        rule="layout",
        needs=("convolutions",),
        shown=True,
        calls=channels_last,
        effect="another order of sums",
        tolerance=TF32,
        lines="model = model.to(memory_format=torch.channels_last)\n"
        "images = images.to(memory_format=torch.channels_last)",
        source="https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
    ),
    Switch(
        "compile",
        "torch.compile",
        rule="fuse",
        needs=("modules",),
        calls=lambda reach, module, call: reach.torch.compile(call, mode="default"),
        effect="another order of sums, other random numbers in dropout; the first steps compile",
        tolerance=TF32,
        lines="model.compile()",
        source=f"{DOCS}/generated/torch.compile.html",
        group="compile",
        draws=True,
    ),
    Switch(
        "compile_graphs",
        "torch.compile with CUDA graphs",
        rule="launch",
        needs=("cuda", "modules"),
        calls=lambda reach, module, call: reach.torch.compile(call, mode="reduce-overhead"),
        effect="as torch.compile; more memory, and outputs are overwritten by the next call",
        tolerance=TF32,
        lines='model.compile(mode="reduce-overhead")',
        source=f"{DOCS}/generated/torch.compile.html",
        group="compile",
        draws=True,
    ),
    Switch(
        "fused_optimizer",
        "the optimizer's step in one kernel (fused)",
        rule="optimizer",
        needs=(),
        functions={f"optim.{name}.__init__": fuse for name in ("Adam", "AdamW", "SGD")},
        effect="another order of rounding",
        lines="torch.optim.AdamW(..., fused=True)  # of your optimizer: Adam, AdamW or SGD",
        source=f"{DOCS}/optim.html#algorithms",
    ),
    Switch(
        "zero_grad",
        "gradients dropped instead of filled with 0",
        needs=("zeroed",),
        shown=True,
        functions=dict.fromkeys(("optim.Optimizer.zero_grad", "nn.Module.zero_grad"), dropping),
        effect="gradients are None between steps, and parameters without one are left out of the optimizer's step",
        lines="optimizer.zero_grad(set_to_none=True)",
        source=f"{DOCS}/generated/torch.optim.Optimizer.zero_grad.html",
    ),
    Switch(
        "loader_workers",
        "worker processes for the DataLoader",
        rule="data",
        needs=(),
        functions={"utils.data.DataLoader.__init__": start_workers},
        draws=True,
        effect="a dataset that draws random numbers draws other ones in its workers; memory for each worker",
        lines="DataLoader(..., num_workers=..., persistent_workers=True)  # one per CPU but one, at most 8",
        source=f"{TUNING}#enable-asynchronous-data-loading-and-augmentation",
    ),
    Switch(
        "threads",
        "a thread for each CPU",
        needs=("idle CPUs",),
        shown=True,
        settings=lambda torch, seen: [Setting(torch.get_num_threads, torch.set_num_threads, seen.cpus)],
        effect="another order of sums",
        lines="torch.set_num_threads(len(os.sched_getaffinity(0)))",
        source=f"{DOCS}/generated/torch.set_num_threads.html",
    ),
    Switch(
        "inference_mode",
        "inference mode",
        needs=("modules", "unused gradients"),
        shown=True,
        calls=lambda reach, module, call: reach.torch.inference_mode()(call),
        effect="its results cannot be used in autograd; less memory, as nothing is kept for a backward pass",
        lines="with torch.inference_mode():\n    output = model(...)",
        source=f"{DOCS}/generated/torch.autograd.grad_mode.inference_mode.html",
    ),
)
SWITCHES: Mapping[str, Switch] = {one.name: one for one in _ROWS}


def named(names: Sequence[str] | None) -> Sequence[Switch]:
    """Return the switches of these names, all for None. Raise ValueError for a name without one."""
    for name in names or ():
        if name not in SWITCHES:
            raise ValueError(f"there is no change {name!r}{did_you_mean(str(name), SWITCHES)}")
    return [SWITCHES[name] for name in (SWITCHES if names is None else names)]
