"""Programs in exports of Nsight Systems."""

import sys
from pathlib import Path
from typing import Any

from helpers import DATA
from helpers.captures import Nsys

MOCK = DATA / "captures" / "rtx3080.sqlite.gz"
SGEMM = "ampere_sgemm_128x64_nn"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"


def fake_nsys(folder: Path, checks: str, export: Path | None = None) -> None:
    """Put a program nsys there, which makes these checks of sys.argv and copies the export to where it is asked for."""
    copied = f"shutil.copy({str(export)!r}, sys.argv[sys.argv.index('--output') + 1])" if export else ""
    (folder / "nsys").write_text(f"#!{sys.executable}\nimport shutil, sys\n{checks}\n{copied}\n")
    (folder / "nsys").chmod(0o755)


def rows(prof: Any, device_type: str | None = None) -> dict[str, Any]:
    return {row.key: row for row in prof.key_averages() if device_type in (None, row.device_type)}


def device_rows(prof: Any) -> dict[str, tuple[int, int]]:
    """Return the calls and the time, ns, of kernels, copies and fills."""
    return {
        row.key: (row.count, round(row.self_device_time_total * 1000))
        for row in prof.key_averages()
        if row.device_type == "cuda" and not row.is_user_annotation
    }


def program(*, old: bool = False) -> Nsys:
    """Two steps with ops, a copy, a fill and a wait; two processes with the same correlations; two devices."""
    made = Nsys(old=old)
    for process, device in ((42, 0), (43, 1)):
        at = 1000 * process
        made.nvtx("ProfilerStep#1", at, at + 900, process)
        made.nvtx("aten::linear, op_id = 1", at + 10, at + 190, process)
        made.nvtx("aten::mm, seq = 7, op_id = 2, sizes = [[64, 32], [32, 16]]", at + 20, at + 180, process)
        made.call("cudaLaunchKernel_v7000", at + 30, at + 40, 1, process)
        made.kernel(SGEMM, at + 100, at + 150, 1, process, device)
        made.nvtx("aten::add, op_id = 3, sizes = [[64, 16], [64, 16], []]", at + 200, at + 290, process)
        made.call("cudaLaunchKernel_v7000", at + 210, at + 220, 2, process)
        made.kernel(ADD, at + 230, at + 260, 2, process, device)
        made.call("cudaMemcpyAsync_v3020", at + 300, at + 310, 3, process)
        made.copy(at + 320, at + 330, 3, process, device)
        made.call("cudaMemsetAsync_v3020", at + 340, at + 350, 4, process)
        made.fill(at + 360, at + 365, 4, process, device)
        made.call("cudaStreamSynchronize_v3020", at + 400, at + 500, 5, process)
        made.sync(at + 401, at + 499, 5, process)
        made.call("cuMemAlloc_v2", at + 600, at + 650, 6, process)
    return made


def graph_program() -> Nsys:
    """Two ops captured in a graph, which is cloned twice and replayed three times; one op is eager."""
    made = Nsys()
    made.nvtx("aten::linear, op_id = 1, sizes = [[64, 32], [16, 32], []]", 90, 190)
    made.nvtx("aten::mm, op_id = 2, sizes = [[64, 32], [32, 16]]", 100, 180)
    made.node(11, 120)
    made.nvtx("aten::add, op_id = 3, sizes = [[64, 16], [64, 16], []]", 200, 290)
    made.node(12, 220)
    made.node(21, 320, original=11)
    made.node(22, 321, original=12)
    made.node(31, 330, original=21)
    made.node(32, 331, original=22)
    for replay in range(3):
        at = 1000 + 1000 * replay
        made.nvtx("replay", at - 10, at + 100)
        made.call("cudaGraphLaunch_v10000", at, at + 10, 50 + replay)
        made.kernel(SGEMM, at + 100, at + 150, 50 + replay, graphNodeId=31, graphId=9)
        made.kernel(ADD, at + 150, at + 170, 50 + replay, graphNodeId=32, graphId=9)
    return made
