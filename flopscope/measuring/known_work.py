"""The work of calls of other libraries: torch's by a record of its ops, functions of NumPy and CuPy by their names.

torch's profiler records the shapes of ops, and the rules for traces know their work. Nothing records NumPy and CuPy, so
that their functions are known by name, if all arguments are arrays; a lambda of operators has no name.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from flopscope import _core
from flopscope.measuring.arrays import dtype_of, is_array
from flopscope.read.trace import Trace
from flopscope.record.kineto_text import keep_text
from flopscope.record.torch_hooks import quiet_start
from flopscope.results.results import store_of

COVERED, ELSE_NS, TRIES = 0.5, 1_000_000, 5
"""Share of a thread's time in a call that torch's ops must take on a CPU, or how long the rest may take, in one of
several calls, so that their work is that of the call."""

_ALIKE = """add maximum minimum exp exp2 log log2 log1p expm1 sin cos tan tanh sqrt floor ceil sum prod mean var std
amax amin argmax argmin cumsum cumprod sort matmul"""
OF_ARRAYS = {name: name for name in _ALIKE.split()} | {
    **{"dot": "matmul", "multiply": "mul", "subtract": "sub", "divide": "div", "true_divide": "div", "power": "pow"},
    **{"negative": "neg", "absolute": "abs", "arctan": "atan", "arcsin": "asin", "arccos": "acos"},
    **{"max": "amax", "min": "amin"},
}
"""Functions of NumPy and CuPy by name, and torch's op that does the same work."""
TYPES = {"float64": "double", "float32": "float", "float16": "c10::Half", "int64": "long int", "int32": "int"}
OF_TORCH = {**TYPES, "bfloat16": "c10::BFloat16"}
ON_TENSOR_CORES = {"fp32": "tf32_tensor", "fp64": "fp64_tensor"}
"""Units of products whose kernels use tensor cores."""


def work_by_name(call: Callable[..., Any]) -> dict[str, Any] | None:
    """Return FLOPs, bytes and unit of a call of a function of NumPy or CuPy that is known by name, or None.

    The work is that of torch's op: inputs are read and the result is written once.
    """
    if not isinstance(call, partial) or call.keywords:
        return None
    op = OF_ARRAYS.get(getattr(call.func, "__name__", ""))
    arrays = [one for one in call.args if is_array(one)]
    types = [TYPES.get(dtype_of(one), "") for one in arrays]
    known = op is not None and arrays and "" not in types and len(arrays) == len(call.args)
    if not known or package_of(call) not in ("numpy", "cupy"):
        return None
    return _core._work_of_torch(f"aten::{op}", [[*one.shape] for one in arrays], types)


def package_of(call: Callable[..., Any]) -> str:
    function = call.func if isinstance(call, partial) else call
    return str(getattr(function, "__module__", None) or type(function).__module__).partition(".")[0]


def unit_of_torch(store: Any, kernels: Any) -> str | None:
    """Return the unit that does most FLOPs of a torch_record(), by its op and by the names of the recorded kernels."""
    columns, _ = store.table(True, 0, {})
    flops = [max(0.0, flops) for flops in columns["flops"]]  # 0.0 for NaN
    most = flops.index(max(flops))
    if not flops[most]:
        return None
    types = [OF_TORCH.get(dtype, "") for dtype in columns["input_dtypes"][most]]
    unit: str | None = _core._work_of_torch(columns["key"][most], columns["input_shapes"][most], types)["unit"]
    uses_tensor_cores = any(share > 0 for share in kernels.gpu_summary()["tensor_core_time"])
    return ON_TENSOR_CORES.get(unit or "", unit) if uses_tensor_cores else unit


def torch_record(function: Callable[[], Any]) -> Any:
    """Call a function under torch's profiler with shapes. Return the store of the record, or None unless it has ops,
    which take most of the time of a call on a CPU. Exceptions of the function propagate."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "profiler") or torch.autograd._profiler_enabled():
        return None
    profile = torch.autograd.profiler.profile
    for _ in range(TRIES):
        with quiet_start(torch), profile(record_shapes=True, use_kineto=True) as prof:
            begin = time.thread_time_ns()
            function()
            took = time.thread_time_ns() - begin
        keep_text(prof)
        store = store_of(Trace(prof.kineto_results.read()), "measure")
        columns, _, kinds, _ = store.events()
        outermost = (columns["kind"] == kinds.index("op")) & (columns["parent"] < 0)
        spent = columns["duration"][outermost].sum()
        if not spent > 0:
            return None
        if package_of(function) == "torch" or spent >= min(COVERED * took, took - ELSE_NS):
            return store
    return None
