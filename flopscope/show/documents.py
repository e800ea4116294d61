"""The documents of summaries and of advice."""

from __future__ import annotations

from flopscope.answers.analysis import PARTS
from flopscope.answers.lines import IDLE_PARTS
from flopscope.results.columns import DEVICE
from flopscope.results.summaries import GPU_COLUMNS
from flopscope.support.documents import Document, Field, columns, record, rows

_WHOLE = "the row is of the whole profile, or of all devices"
_NO_ROW = "it rests on no single row of the table, such as on the idle time before an op, or on an API call"
EVIDENCE = (
    Field("op", "text", doc="the `key` of its rows"),
    *(Field(name, "any") for name in ("shapes", "dtypes")),
    *columns("time", "µs", time="a step, or of the profile if it has no steps"),
    *columns("calls", calls="a step, or of the profile if it has no steps", why="the calls are unknown"),
    *columns("row$", why=_NO_ROW, row="`id` of the row in the table grouped by shape"),
    *columns("event#", why=_NO_ROW, event="`id` of one of its events in `events()`"),
)
ADVICE_FIELDS = (
    *columns("rule$", rule="name of the rule, which has a section in docs/answers.md"),
    *columns(
        "saving_us saving_alone_us saving_pct",
        saving_us="a step, or of the profile if it has no steps",
        saving_alone_us="of this change without those before it; 0 if it needs them",
    ),
    *columns("up_to?", up_to="it rests on the host's time, of which recording took an estimated part"),
    *columns("action$ what$"),
    rows("evidence", EVIDENCE, "the ops or calls that it rests on, the longest first"),
    *columns("where$", why="no module and no source line was recorded", where="module or source line"),
    Field("facts", "any", doc="what the sentences are made from", why="a fact that was not recorded"),
)
_NOTES = columns("notes@", notes="numbers that mislead, and what could not be judged")
ADVICE = Document("advice", "what to change, the largest saving alone first", (rows("advice", ADVICE_FIELDS), *_NOTES))

_STEP = columns("step$", why=_WHOLE, step="name of the step")
ACCOUNTING_FIELDS = (
    *columns("device$", why=_WHOLE),
    *_STEP,
    *columns(" ".join(("total", *PARTS)), "µs", total="the sum of the parts"),
    *columns("mfu mbu", "%", "the work or the peaks are unknown"),
)
_NO_LIMIT = "the work or the peaks are unknown"
_MOST = (
    *columns("op$ calls"),
    *columns("time ideal", "µs", _NO_LIMIT, ideal="at the peaks"),
    *columns("tflops_per_s:TFLOP/s gbytes_per_s:GB/s", why="the work is unknown"),
    *columns("computes? unknown$", why="the ideal time is known", computes="its limit is the peak FLOP/s"),
)
_EXPOSED = (
    *columns("time:µs share:%"),
    *columns("collective$ bus_gbytes_per_s:GB/s", why="no size was recorded", bus_gbytes_per_s="median, with waits"),
)
_RECORDING = (
    *columns("step$", why="the program has no steps", step="what ends a step: optimizer, flopscope.step(), …"),
    *columns("step_of$", why="steps are not the passes of a module", step_of="class of the module"),
    *columns("recorded_steps#"),
    *columns("recorded_step", "µs", "there are no recorded steps, or none is known as a whole"),
    *columns("bare_steps#", bare_steps="steps that nothing recorded"),
    *columns("bare_step bare_step_low bare_step_high", "µs", "no step was timed that nothing recorded",
             bare_step="median; low and high: its 95 % confidence interval"),
    rows("slow_steps", columns("number# time:µs line$", line="where the host was for most of it"),
         "the longest steps that nothing recorded, numbered from 1"),
)  # fmt: skip
_PARTS_OF_STEP = "kernel memcpy memset communication runtime data_loading other_cpu other total"
_LAUNCHES = (
    "device# kernels launches delay_min:µs delay_median:µs delay_p95:µs delay_max:µs negative_delays "
    "call_time_median:µs queue_mean queue_max launch_bound_pct idle_lost:µs"
)
SUMMARY = Document(
    "summary",
    "where the time of a profile went, and what to change",
    (
        *columns("file$", why="the profile was not read from a file"),
        DEVICE,
        record("recording", _RECORDING, "what steps take, those that were recorded and those that were not"),
        rows("accounting", ACCOUNTING_FIELDS, "every instant of each device in each step"),
        rows("most", _MOST, "the ops with the most time, longest first; kernels of which no op is known"),
        rows("phases", columns("phase$ host:µs device:µs"), "of a training step, or of all"),
        record("exposed", _EXPOSED, "communication that nothing hides", "it takes less than 5 % of the time"),
        rows("advice", ADVICE_FIELDS, "what to change, the largest saving first"),
        *_NOTES,
        rows("gpus", (*columns("device#"), *columns(" ".join(GPU_COLUMNS[1:]), "%"))),
        rows("steps", (*_STEP, *columns(_PARTS_OF_STEP, "µs")), "the time of each step by what ran"),
        rows("launches", columns(_LAUNCHES, why="no launch has one"), "launches of kernels, by device"),
        rows(
            "lines",
            (
                *columns("group$ line$ inside$"),
                *columns(" ".join(("time", "own_time", "cpu_time", "own_cpu_time", *IDLE_PARTS)), "µs"),
            ),
            "where the program was, by sampled stacks",
        ),
    ),
)
SUMMARIES = Document("summaries", "the summaries of several traces", (Field("traces", "documents", of=SUMMARY),))
