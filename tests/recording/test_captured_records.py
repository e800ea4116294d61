"""Records of a fake CUPTI (tests/c/fake_cupti.c) as events: their names, launches and devices."""

from pathlib import Path

import pytest
from helpers.fake_cupti import Run, runner

run = runner()


NAMED = {
    "fake_copy": {  # kind, from, to
        (1, 1, 3): "Memcpy HtoD (Pageable -> Device)",
        (1, 2, 3): "Memcpy HtoD (Pinned -> Device)",
        (2, 3, 1): "Memcpy DtoH (Device -> Pageable)",
        (8, 3, 3): "Memcpy DtoD (Device -> Device)",
        (9, 2, 2): "Memcpy HtoH (Pinned -> Pinned)",
        (3, 1, 4): "Memcpy HtoA (Pageable -> Array)",
        (7, 5, 6): "Memcpy DtoA (Managed -> Device Static)",
    },
    "fake_fill": {(3,): "Memset (Device)", (2,): "Memset (Pinned)"},
    "fake_synchronization": {(1,): "Event Sync", (2,): "Stream Wait Event", (3,): "Stream Sync", (4,): "Context Sync"},
    "fake_overhead": {
        (1,): "Driver Compiler", (1 << 16,): "Buffer Flush", (2 << 16,): "Instrumentation", (3 << 16,): "Resource",
        (4 << 16,): "Runtime Triggered Module Loading", (5 << 16,): "Lazy Function Loading",
        (6 << 16,): "Command Buffer Full", (7 << 16,): "Activity Buffer Request", (8 << 16,): "UVM Activity Init",
    },
    "fake_call": {  # no event of what is called often and tells nothing
        ("cudaLaunchKernel_v7000",): "cudaLaunchKernel",
        ("cudaLaunchKernel_ptsz_v7000",): "cudaLaunchKernel",
        ("cudaMemcpy_ptds_v7000",): "cudaMemcpy",
        ("cudaMemcpy2DToArray_v3020",): "cudaMemcpy2DToArray",
        ("cudaGraphLaunch_v10000",): "cudaGraphLaunch",
        ("cudaGetDevice_v3020",): None,
        ("cudaEventCreate_v3020",): None,
        ("cuLaunchKernel",): "cuLaunchKernel",
        ("cuLaunchKernel_ptsz",): "cuLaunchKernel",
        ("cuLaunchKernelEx",): "cuLaunchKernelEx",
        ("cuMemAlloc_v2",): "cuMemAlloc_v2",
        ("cuMemcpyDtoH_v2_ptds",): "cuMemcpyDtoH_v2",
        ("cuCtxGetCurrent",): None,
    },
}  # fmt: skip
AFTER = {"fake_copy": (4096,), "fake_fill": (4096,)}
LAST = {"fake_copy": (0, 7, 9), "fake_fill": (0, 7, 9), "fake_synchronization": (9,), "fake_overhead": (77,)}


@pytest.mark.parametrize("record", NAMED)
def test_records_have_the_names_of_torch(run: Run, record: str) -> None:
    names = NAMED[record]
    calls = [list(key) for key in names]
    found = run(f"calls, after, last = {calls}, {AFTER.get(record, ())}, {LAST.get(record, (1000, 9))}", f"""
    with fs.profile(timer="cupti") as prof:
        start = cuda.now()
        time.sleep(0.001)
        for i, given in enumerate(calls):
            given = [one.encode() if isinstance(one, str) else one for one in given]
            cuda.fake.{record}(*given, *after, start + 10 * i, start + 10 * i + 4, *last)
        recorded = cuda.count("calls")
    columns, names, kinds, _ = prof._core.events()
    print(json.dumps([[names[name] for name in columns["name"].tolist()], columns["duration"].tolist(), recorded]))
    """)  # fmt: skip
    expected = [name for name in names.values() if name is not None]
    assert found[:2] == [expected, [4] * len(expected)]
    assert found[2] == (len(expected) if record == "fake_call" else 0), "CUPTI does not record the other calls"


def test_a_trace_has_the_captured_records_and_describes_the_devices_that_worked(run: Run, tmp_path: Path) -> None:
    target = str(tmp_path / "trace.json")
    waited, trace = run(f"""
    cuda.fake.fake_set_active(0, 0)  # used through a context other than the primary one
    cuda.fake.fake_set_launch(264, 128, 40, 1024, 2048)
    with fs.profile(timer="cupti") as prof:
        cuda.launch("_Z1kv", 4000, device=1, stream=13)
    prof.export_chrome_trace({target!r})
    print(json.dumps([cuda.count("waited"), json.load(open({target!r}))]))
    """)
    (kernel,) = (event for event in trace["traceEvents"] if event.get("cat") == "kernel")
    (call,) = (event for event in trace["traceEvents"] if event.get("cat") == "cuda_runtime")
    assert kernel["name"] == "k()" and kernel["dur"] == 4 and call["name"] == "cudaLaunchKernel"
    arguments = kernel["args"]
    assert arguments["device"] == 1 and arguments["stream"] == 13
    assert arguments["grid"] == [264, 2, 3] and arguments["block"] == [128, 4, 1]
    assert arguments["registers per thread"] == 40 and arguments["shared memory"] == 3072
    assert arguments["correlation"] == call["args"]["correlation"]
    assert kernel["ts"] - call["ts"] == pytest.approx(0.5, abs=2e-3)
    assert waited == 1 and trace["deviceProperties"] == [
        {
            **{"id": 1, "name": "Fake L4", "totalGlobalMem": 24 << 30, "computeMajor": 8, "computeMinor": 9},
            **{"maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 1536, "regsPerBlock": 65536, "numSms": 58},
            **{"warpSize": 32, "sharedMemPerBlock": 49152, "regsPerMultiprocessor": 65536},
            **{"sharedMemPerBlockOptin": 101376, "sharedMemPerMultiprocessor": 102400},
        }
    ]
