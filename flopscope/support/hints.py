"""What to record so that more is known, in the words of the program that recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


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
    """What records the rest: "device", "steps", "stacks", "modules", "memory", "counters"."""
    graphs: str = "Call fs.watch_graphs() before graphs are captured, or load_trace(…, captures=…) or --captures."
    """Why the capture of CUDA graphs is unknown, or what to do: a sentence."""
    said: tuple[str, ...] = ()
    """What the recording program reported about the recording."""
    busy: str = ""
    """Why all times are longer than they need be: a sentence."""


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
    },
)
"""Hints of flopscope run."""
_WITHOUT_OPS = (
    "The work is unknown, because no op that did it was recorded. ProfilerActivity.CPU with record_shapes=True records "
    "ops; those of a replayed graph are in its capture (fs.watch_graphs(), captures=…); state other work by "
    "fs.record_function(…, flops=…, bytes=…)."
)
WITHOUT_OPS = HINTS._replace(shapes=_WITHOUT_OPS, advice=_WITHOUT_OPS)
"""Hints of a trace of torch without ops."""
ON_CPU_WITHOUT_OPS = (
    "The work of the ranges is unknown, because no op that did it was recorded: state it by fs.record_function(…, "
    "flops=…, bytes=…, unit=…)."
)
"""Hint of a CPU program that does not use torch."""
LINES_ALONE = (
    "No op of torch or flopscope was recorded, so no work is known; calls of NumPy and other libraries count for the "
    "line that made them. State the work of a part, and it is rated: fs.record_function(…, flops=…, bytes=…, unit=…)."
)
"""Hint of a profile that has sampled lines and nothing else."""
