"""What a summary names whatever else is known: the ops with the most time, exposed communication, phases of a step."""

import numpy as np
import pytest
from helpers.faulty_programs import COLLECTIVE
from helpers.hand_traces import NCCL, Program, call, event, in_a_row, load

from flopscope.answers.analysis import analysis_of

ADD = ("aten::add", 20.0, ([4096, 1024], [4096, 1024]))


def most(program: Program) -> list[str]:
    """Return the lines of the section about the ops with the most time."""
    return str(program.load().summary()).partition("\nMost time\n")[2].partition("\n\n")[0].splitlines()


@pytest.mark.parametrize(
    ("op", "line"),
    [
        (("my::op", 90.0, ([8, 8],)), "  --: my::op: the work is unknown: no rule gives it"),
        (("aten::add", 90.0, ()), "  --: the work is unknown: no shapes were recorded"),
        (("aten::mm", 90.0, ([8, 8],)), "  --: aten::mm: the work is unknown: its arguments do not give it"),
        (("aten::to", 90.0, ([8],), {"kernel": "Memcpy HtoD (Pinned -> Device)"}),
         "  --: aten::to: copies are limited by the link to the host"),
    ],
)  # fmt: skip
def test_a_summary_says_why_the_work_of_an_op_is_unknown(op: tuple[object, ...], line: str) -> None:
    lines = most(in_a_row(op, *[ADD] * (op[0] != "aten::add")))
    assert lines[-1] == line and lines[1].split()[0] == op[0] and lines[1].endswith(" --")


def test_a_summary_names_kernels_without_ops() -> None:
    program = Program()
    program.work("void ns::mine<float>(int)", 0, 86)
    program.work("other", 90, 10)
    assert most(program) == [
        "  name             calls    time  share  rate  at its limits",
        "  ns::mine<float>      1  86.0us  86.0%    --             --",
        "  other                1  10.0us  10.0%    --             --",
        "  --: the work is unknown: no op that launched it was recorded",
    ]


def test_a_summary_says_what_limits_an_op_has_that_no_peak_is_known_of() -> None:
    program = in_a_row(ADD)
    program.head["deviceProperties"][0]["name"] = "Unheard Of 1"
    # 3 × 16 MiB in 20 us are 2,517 GB/s.
    assert most(program)[1:] == [
        "  aten::add      1  20.0us  66.7%  2,517 GB/s             --",
        "  --: a peak that limits it is unknown",
    ]


def test_a_summary_shows_the_rate_that_is_limited() -> None:
    product = ("aten::mm", 100.0, ([2048, 2048], [2048, 2048]))
    (_, mm, add, *rest) = most(in_a_row(product, ADD))
    assert mm.split()[4:6] == ["172", "TFLOP/s"] and add.split()[4:6] == ["2,517", "GB/s"] and not rest


def test_exposed_communication_has_a_sentence() -> None:
    program = Program()
    program.work("kernel", 0, 80)
    # 10 MB among two ranks in 20 us: 500 GB/s, of which allreduce has 2 (n - 1) / n on the bus.
    program.work(NCCL, 80, 20, **COLLECTIVE, **{"In msg nelems": 2_500_000, "Out msg nelems": 2_500_000})
    said = (
        "Communication that no computation hides takes 20.0% of the time, 20.0us in the profile, most of it allreduce "
        "at a bus bandwidth of 500 GB/s (median, with waits)."
    )
    assert said in " ".join(str(program.load().summary()).split())
    exposed = {"time_us": 20, "share_pct": 20, "collective": "allreduce", "bus_gbytes_per_s": pytest.approx(500)}
    assert program.load().summary().to_dict()["exposed"] == exposed
    program.work("kernel", 100, 400)  # then it is 4 % of the time
    assert "Communication that" not in str(program.load().summary())


def phased(*names: str) -> Program:
    """Return a program of two steps of 100 us with an op and its kernel in each of these ranges or ops."""
    program = Program()
    for number in range(2):
        program.step(number, 100 * number, 100)
        for place, name in enumerate(names):
            at = 100 * number + 20 * place
            program.add("cpu_op" if "evaluate" in name else "user_annotation", name, at, 5 + place)
            program.run("aten::add", at + 1, at + 4, 10 + place, [8], [8])
    return program


def test_a_summary_has_the_phases_of_a_training_step() -> None:
    program = phased(
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "model",
        "autograd::engine::evaluate_function: AddBackward0",
        "Optimizer.step#SGD.step",
    )
    said = (
        "Phases (host, device, a step): data 5.00us, 10.0us; forward 2.00us, 11.0us; backward 7.00us, 12.0us; "
        "optimizer 8.00us, 13.0us."
    )
    assert said in " ".join(str(program.load().summary()).split())
    assert program.load().summary().to_dict()["phases"][1] == {"phase": "forward", "host_us": 2, "device_us": 11}
    assert "Phases" not in str(phased("model").load().summary())


def test_calls_are_alike_by_arguments_and_by_what_is_around_them() -> None:
    program = Program()
    for place, (around, shape) in enumerate([("a", [2]), ("a", [3]), ("b", [2]), ("a", [2])]):
        program.op(around, 20 * place, 10)
        program.op("aten::relu", 20 * place + 1, 5, shape)
    analysis = analysis_of(program.load(), "test")
    columns, names, *_ = analysis.events
    calls = np.flatnonzero(columns["name"] == names.index("aten::relu"))
    for asked, groups in (({"arguments": True}, [0, 1, 0, 0]), ({"around": True}, [0, 0, 1, 0])):
        first, counts, numbers = analysis.calls_alike(calls, **asked)
        assert numbers.tolist() == groups and counts.tolist() == np.bincount(groups).tolist()
        assert first.tolist() == [calls[0], calls[groups.index(1)]]
    with pytest.raises(ValueError, match="there is no event 1000"):
        analysis.calls_alike(np.array([1000]))


def test_a_recording_of_calls_or_ranges_alone_says_so() -> None:
    for one, name in ((call("cudaLaunchKernel", 0, 5), "cudaLaunchKernel"), (event("user_annotation", "e", 0, 5), "e")):
        text = " ".join(str(load(one).summary()).split())
        assert text.startswith("No op and no work of a device was recorded with a duration, only calls, ranges or wait")
        assert text.endswith(f"name calls time {name} 1 5.00us")
