"""A recording of the program in tests/data/hlo/aligned.hlo: four steps of a loop of three, as Kineto would write it."""

from helpers import TESTS
from helpers.hand_traces import event, kernel, text_of

HLO = (TESTS / "data" / "hlo" / "aligned.hlo").read_text(encoding="utf-8")
STEPS, TRIPS = 4, 3
ELEMENTS = 256 * 512
PRODUCT = 2 * 256 * 512 * 512
BODY = ["Memset (Device)", "nvjet_tst_64x256_NNN", "loop_multiply_fusion", "loop_add_fusion"]
STEP = ["loop_convert_fusion_7", "memcpy32_post", *TRIPS * BODY, "loop_multiply_fusion"]
GRAPH = {"graph id": 3, "graph node id": 1}
PARTS = (5, 8, len(STEP))  # where the launches of a step end


def recorded(*, graphs: bool = True, steps: int = STEPS, outside: int = 0) -> bytes:
    """Return a trace of steps, launched as graphs or kernel by kernel, and of kernels outside of them."""
    events, time, correlation = [], 1000.0, 1
    for name in [*outside * ["some_other_kernel"], *steps * STEP]:
        position = (len([each for each in events if each["pid"] == 0]) - outside) % len(STEP)
        if not graphs or position in (0, *PARTS[:-1]) or name == "some_other_kernel":
            correlation += 1
            events.append(event("cuda_driver", "cuGraphLaunch", time - 900, 5.0, correlation=correlation))
        fill = name.startswith("Memset")
        shape = {"bytes": 4} if fill else {"grid": [256, 1, 1], "block": [128, 1, 1], **GRAPH}
        work = kernel(name, time, 9.0, context=1, correlation=correlation, **shape)
        events.append({**work, "cat": "gpu_memset" if fill else "kernel"})
        time += 10
    devices = [{"id": 0, "name": "NVIDIA H200", "numSms": 132, "computeMajor": 9, "computeMinor": 0}]
    return text_of(*events, schemaVersion=1, deviceProperties=devices)
