"""Kernels of an H200 with the samples of their counters, as recorded."""

import numpy as np

from flopscope import _core
from helpers import DATA

SIZES = (256, 512, 768, 1024, 1448, 2048, 2896, 4096, 8192)


def recording(name: str) -> _core.Store:
    """Return a store with the samples and kernels of an H200; the kernels are named by what they did.

    ``big`` adds to 256 MiB in place, ``add2048`` adds two float32 matrices of 2048² into a third.
    """
    file = np.load(DATA / "counters" / name)
    names = [k for n in SIZES for k in [*["big", f"add{n}"] * 8, "sleep", *["big", "sleep", f"add{n}", "sleep"] * 4]]
    names += ["add", "fill", "sum", "sin", "fill", "mm", "transpose"] * 8
    store = _core.Store()
    for key, start, length in zip(names, file["start"].tolist(), file["duration"].tolist(), strict=False):
        _core._append(store, "kernel", key, start, length, device=0)  # type: ignore[attr-defined]
    _core._set_device(store, 0, {"name": "NVIDIA H200", "l2_bytes": 60 << 20})  # type: ignore[attr-defined]
    edges = np.cumsum(file["edges"]).astype(np.int64) + 700  # the delay of samples
    columns = {"dram_bytes_read": "dram_read", "dram_bytes_written": "dram_written", "tensor_active": "tensor_active"}
    for metric, column in columns.items():
        if column in file:
            unit = 256 if "dram" in column else 1  # bytes
            store.add_samples(0, metric, edges[:-1], edges[1:], file[column] * np.float64(unit))
    return store
