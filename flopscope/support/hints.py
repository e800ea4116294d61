"""What to record so that more is known, in the words of the program that recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_UNKNOWN_KERNELS = (
    "No rule knows kernels of CuPy, Triton, Numba or CUDA C by their names: counters count what they move ({}), "
    "fs.record_function(…, flops=…, bytes=…, unit=…) states their work, as does launch_metadata of Triton kernels, and "
    "fs.register_work() adds a rule."
)
NOT_RESOLVED = (
    "The counters did not resolve the kernels that are not modelled: they are shorter than two samples, or ran while "
    "nothing was counted."
)
"""Why the work of kernels is unknown though they were counted. Their time is beside it: a table lists them, with the
times of single kernels, and the accounting has them as a part, in which no instant counts twice."""


class Hints(NamedTuple):
    """Texts for users."""

    shapes: str
    """Why the work of ops is unknown, and what to do: a sentence."""
    advice: str
    """The same for a list of advice."""
    steps: str
    """How to record steps: a clause."""
    option: str
    """The option that records input shapes."""
    options: Mapping[str, str]
    """What records the rest: "device", "steps", "stacks", "modules", "memory", "counters"; "later", steps after the
    first; "host", what the host does, where that is not "stacks"."""
    graphs: str = "Call fs.watch_graphs() before graphs are captured, or load_trace(…, captures=…) or --captures."
    """Why the capture of CUDA graphs is unknown, or what to do: a sentence."""
    kernels: str = _UNKNOWN_KERNELS.format("counters=True")
    """What makes the work of kernels known that no op of torch launched: a sentence."""
    said: tuple[str, ...] = ()
    """What the recording program reported about the recording."""
    busy: str = ""
    """Why all times are longer than they need be: a sentence."""
    own: bool = False
    """Whether flopscope recorded the events of a trace, not torch."""


HINTS = Hints(
    "The work of ops is unknown because no input shapes were recorded: profile with record_shapes=True.",
    "No input shapes were recorded, so the work of most ops is unknown: profile with record_shapes=True, or by "
    "flopscope run without --no-shapes.",
    "record with a schedule, and call prof.step() in the loop; under flopscope run, call fs.step()",
    "record_shapes=True",
    {
        "device": "activities with ProfilerActivity.CUDA",
        "steps": "prof.step() after each step",
        "stacks": "with_stack=True",
        "modules": 'with_stack=True, or record_function("nn.Module: Block_0")',
        "memory": "profile_memory=True",
        "counters": "counters=True",
        "later": "flopscope run --steps, or schedule(skip_first=…)",
    },
)
RUN_HINTS = Hints(
    "The work of ops is unknown because no input shapes were recorded: leave out --no-shapes.",
    "No input shapes were recorded, so the work of most ops is unknown: leave out --no-shapes.",
    "call flopscope.step() at the end of each pass of the program's loop",
    "--shapes",
    {
        "device": "a program that uses a GPU",
        "steps": "flopscope.step() after each step",
        "stacks": "--stacks",
        "modules": "--stacks",
        "memory": "--memory",
        "counters": "--counters",
        "later": "flopscope run --steps",
    },
    kernels=_UNKNOWN_KERNELS.format("--counters"),
)
"""Hints of flopscope run."""
OWN_HINTS = HINTS._replace(kernels=_UNKNOWN_KERNELS.format("counters=True, or flopscope run --counters"), own=True)
"""Hints of a trace that flopscope wrote, of any program."""
_WITHOUT_OPS = (
    "The work is unknown, because no op that did it was recorded. ProfilerActivity.CPU with record_shapes=True records "
    "ops; those of a replayed graph are in its capture (fs.watch_graphs(), captures=…); state other work by "
    "fs.record_function(…, flops=…, bytes=…)."
)
WITHOUT_OPS = HINTS._replace(shapes=_WITHOUT_OPS, advice=_WITHOUT_OPS, kernels=_WITHOUT_OPS)
"""Hints of a trace of torch without ops."""
GENERATED = (
    "Code that torch.compile generates for a CPU is recorded only with torch._inductor.config.cpp."
    "enable_kernel_profile = True, set before it compiles; its work is unknown."
)
GENERATED_KERNELS = (
    "The ranges of code that torch.compile generated for a CPU record no sizes, so its work is unknown; a recording "
    "without torch.compile rates its ops."
)
"""Hint of a recording with that setting."""
ON_CPU_WITHOUT_OPS = (
    "The work of the ranges is unknown, because no op that did it was recorded: state it by fs.record_function(…, "
    "flops=…, bytes=…, unit=…)."
)
"""Hint of a CPU program that does not use torch."""
TORCH_ON_CPU = (
    "fs.profile does not record torch's ops on a CPU: flopscope.torch.profile, flopscope run and %%flopscope do."
)
"""Hint of an empty profile of flopscope in a program that has imported torch."""
_WITHOUT_HLO = (
    "The work is unknown, because the recording lacks the HLO of the modules that ran: pass it by load_trace(…, hlo=…)"
    ", as jax.jit(f).lower(x).compile().as_text() gives it."
)
_STEP = 'jax.profiler.StepTraceAnnotation("train", step_num=i)'
XLA_HINTS = Hints(
    _WITHOUT_HLO,
    _WITHOUT_HLO,
    f"enclose each step of the loop in {_STEP}",
    "jax.profiler.trace()",
    {
        "device": "jax.profiler.trace() in a program that uses a GPU or a TPU",
        "steps": f"{_STEP} around each step",
        "stacks": "jax.profiler.trace() with its Python tracer, which is on by default,",
        "modules": "jax.named_scope() around each part of the model",
        "memory": "flopscope run --memory",
        "counters": "flopscope run --counters",
        "later": "jax.profiler.trace() around them alone",
    },
    "Pass the HLO of their modules: load_trace(…, hlo=…).",
)
"""Hints of a recording of XLA's profiler, of which nearly all are of JAX."""
