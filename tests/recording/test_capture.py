"""Live capture without a GPU: programs that receive kernel records from a fake CUPTI (tests/c/fake_cupti.c)."""

from pathlib import Path

import pytest
from helpers.fake_cupti import Run, build, run_with_fake, runner

import flopscope as fs

HAS_GPU = any(device.kind == "cuda" for device in fs.devices())
run = runner()


# An op of some milliseconds, two kernels launched halfway through it, and one launched after it.
LONG_OP = """
    x = fs.rand((3000, 1000))
    with fs.profile(timer="cupti", **OPTIONS) as prof:
        begin = cuda.now(); fs.sin(x); end = cuda.now()
        middle = (begin + end) // 2
        cuda.launch("_Z3sinPfi", 5000, at=middle)
        cuda.launch("_Z3sinPfi", 7000, at=middle + 2000)
        cuda.launch("unowned", 9000)
    assert end - begin > 100_000
"""


# Tables ---------------------------------------------------------------------------------------------------------------


def test_an_op_has_the_device_time_of_its_kernels(run: Run) -> None:
    table = run("OPTIONS = {}", LONG_OP, """
    assert prof.timing_source == "cupti" and prof.dropped == 0
    print(json.dumps(rows(prof)))
    """)  # fmt: skip
    op, call, kernel = table["flopscope::sin"], table["cudaLaunchKernel"], table["sin(float*, int) @cuda"]
    assert op["count"] == 1 and op["timing_source"] == "cupti"
    assert op["self_device_time_total"] == op["device_time_total"] == 12
    assert kernel["count"] == 2 and kernel["self_device_time_total"] == 12 and kernel["timing_source"] == "cupti"
    assert table["unowned @cuda"]["self_device_time_total"] == 9
    assert call["count"] == 3 and call["self_cpu_time_total"] == 3 and call["self_device_time_total"] == 0
    assert op["cpu_time_total"] - op["self_cpu_time_total"] == pytest.approx(2)  # the calls inside
    assert set(table) == {"flopscope::sin", "cudaLaunchKernel", "sin(float*, int) @cuda", "unowned @cuda"}


@pytest.mark.parametrize(
    ("options", "rows"),
    [("record_api_calls=False", {"flopscope::sin"}), ("activities=[fs.ProfilerActivity.CUDA]", {"cudaLaunchKernel"})],
)
def test_calls_and_ops_can_be_left_out(run: Run, options: str, rows: set[str]) -> None:
    table = run(f"OPTIONS = dict({options})", LONG_OP, "print(json.dumps(rows(prof)))")
    assert set(table) == {"sin(float*, int) @cuda", "unowned @cuda", *rows}
    assert table["sin(float*, int) @cuda"]["self_device_time_total"] == 12
    assert sum(table[key]["self_device_time_total"] for key in rows) == 0, "no call says what launched the kernels"


@pytest.mark.skipif(HAS_GPU, reason="flopscope itself can use the GPU")
def test_kernels_of_other_libraries_need_no_cuda_in_flopscope(run: Run) -> None:
    text, names = run("""
    with fs.profile() as prof:
        cuda.launch("theirs", 4000)
        cuda.launch("theirs", 4000, device=1)
    table = prof.key_averages()
    print(json.dumps([table.table(), sorted(prof.key_averages(peaks="datasheet").to_pandas()["key"])]))
    """)
    assert "theirs" in text and "8.000us" in text and names == ["cudaLaunchKernel", "theirs"]


def test_threads_have_separate_ranges(run: Run) -> None:
    table = run("""
    def work(number):
        with fs.record_function(f"thread {number}"):
            meet.wait()
            for i in range(20):
                cuda.launch(f"kernel {number}", 1000 * (number + 1), stream=number)
            meet.wait()

    cuda.set("uses_workers", 1)
    meet = threading.Barrier(4)
    with fs.profile(timer="cupti") as prof:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    print(json.dumps(rows(prof)))
    """)
    for number in range(4):
        assert table[f"thread {number}"]["device_time_total"] == 20 * (number + 1)
        assert table[f"kernel {number} @cuda"]["count"] == 20
    assert table["cudaLaunchKernel"]["count"] == 80


def test_graphs_copies_fills_and_waits_are_rows_and_lost_records_are_counted(run: Run) -> None:
    table, dropped, text = run("""
    with fs.profile(timer="cupti") as prof:
        for replay in range(3):  # one call of many kernels
            with fs.record_function("replay"):
                start, correlation = cuda.call(GRAPH_LAUNCH)
                for node in range(10):
                    cuda.fake.fake_set_graph(4, node)
                    cuda.kernel("node", start + 600 + 100 * node, 100, correlation)
        with fs.record_function("moving"):
            start, correlation = cuda.call("cudaMemcpyAsync_v3020")
            cuda.fake.fake_copy(1, 1, 3, 4096, start + 100, start + 2100, 0, 7, correlation)
            start, correlation = cuda.call("cuMemcpyDtoH_v2_ptds")
            cuda.fake.fake_fill(3, 4096, start + 100, start + 1100, 0, 7, correlation)
            start, correlation = cuda.call("cudaDeviceSynchronize_v3020")
            cuda.fake.fake_synchronization(4, start + 100, start + 900, correlation)
        start, correlation = cuda.call()
        cuda.kernel("never ended", start, 0, correlation)
    print(json.dumps([rows(prof), prof.dropped, prof.key_averages(peaks="none").table()]))
    """)
    assert table["cudaGraphLaunch"]["count"] == 3 and table["node @cuda"]["count"] == 30
    assert table["replay"]["device_time_total"] == 3 and table["replay @cuda"]["count"] == 3
    assert table["Memcpy HtoD (Pageable -> Device) @cuda"]["self_device_time_total"] == 2
    assert table["Memset (Device) @cuda"]["self_device_time_total"] == 1
    assert table["moving"]["device_time_total"] == 3 and table["cuMemcpyDtoH_v2"]["count"] == 1
    assert table["cudaDeviceSynchronize"]["count"] == 1
    assert dropped == 1 and "Dropped records: 1." in text and "never ended" not in text


def test_warm_up_steps_are_not_recorded(run: Run) -> None:
    table, subscribed, finalized, dropped = run("""
    tables = []
    def ready(prof):
        tables.append(rows(prof))
    with fs.profile(timer="cupti", schedule=fs.schedule(wait=1, warmup=1, active=2), on_trace_ready=ready) as prof:
        for step in range(4):
            cuda.launch(f"kernel {step}", 1000)
            prof.step()
    print(json.dumps([tables[0], cuda.count("subscribed"), cuda.count("finalized"), prof.dropped]))
    """)
    assert {"kernel 2 @cuda", "kernel 3 @cuda"} == {name for name in table if name.startswith("kernel")}
    assert table["ProfilerStep*" if "ProfilerStep*" in table else "ProfilerStep#2"]["device_time_total"] in (1, 2)
    assert (subscribed, finalized, dropped) == (1, 1, 0)  # warm-up and recording are one capture


def test_a_capture_can_be_split_while_it_runs(run: Run) -> None:
    parts, counts, left, broken = run("""
    def names(core):
        columns, names, _, _ = core.events()
        return [names[name] for name in columns["name"]]

    core = _core.Profiler(ops=False, cupti=True, api_calls=False)
    core.start()
    cuda.launch("first")
    parts = [core.split()]
    cuda.launch("second"), cuda.launch("third")
    parts.append(core.split())
    parts.append(core.split())
    cuda.launch("fourth")
    cuda.fail("cuptiActivityFlushAll", 999)
    broken = refused(core.split)
    cuda.fail("cuptiActivityFlushAll", 0)
    core.split()
    cuda.launch("fifth")
    counts = [part.running for part in parts], core.running, cuda.count("subscribed")
    core.stop()
    left = refused(core.split)
    print(json.dumps([[names(part) for part in [*parts, core.store]], counts, left, broken]))
    """)
    assert parts == [["first"], ["second", "third"], [], ["fifth"]] and counts == [[False, False, False], True, 1]
    assert "not running" in left and "flushing its records" in broken


# Other clients of CUPTI -----------------------------------------------------------------------------------------------


def test_the_client_that_holds_cupti_is_named_and_events_are_used_instead(run: Run) -> None:
    messages, source, refused = run("""
    cuda.take("CUPTI for Nsight Systems")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with fs.profile() as prof:
            fs.sin(fs.ones((4, 4)))
    why = refused(fs.profile(timer="cupti").start)
    print(json.dumps([[str(warning.message) for warning in caught], prof.timing_source, why]))
    """)
    assert len(messages) == 1 and "CUPTI for Nsight Systems" in messages[0]
    assert source == ("event" if HAS_GPU else "cpu")
    assert "CUPTI for Nsight Systems" in refused and 'timer="cupti"' in refused


@pytest.mark.parametrize(
    ("enabled", "proton", "shares"),
    [(False, False, True), (True, False, False), (False, True, False), (None, False, False)],
)
def test_torchs_idle_subscription_is_shared(run: Run, enabled: bool | None, proton: bool, shares: bool) -> None:
    client = f"""
    import types
    if {enabled} is not None:
        sys.modules["torch.autograd.profiler"] = types.SimpleNamespace(_is_profiler_enabled={enabled})
    if {proton}:
        sys.modules["triton.profiler"] = types.SimpleNamespace()
    """
    program = """
    cuda.take("")
    why = None
    try:
        with fs.profile(timer="cupti") as prof:
            cuda.launch("kernel", 3000)
        table = rows(prof)
    except RuntimeError as problem:
        why, table = str(problem), {}
    print(json.dumps([why, table, cuda.count("enabled"), cuda.count("system_threads")]))
    """
    why, table, *left = run(client, program)
    assert left == [0, 0]  # the state of CUPTI is unchanged
    if shares:
        assert why is None and table["kernel @cuda"]["self_device_time_total"] == 3
    else:
        assert "a client without a name" in why and table == {}
        assert ("torch.profiler is recording" in why) == (enabled is True)


def test_a_client_that_takes_records_is_reported(run: Run) -> None:
    messages = run("""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with fs.profile(timer="cupti") as prof:
            recorder = prof._live
            cuda.launch()
            cuda.fake.fake_other_client_captures()
    assert recorder.capture["taken"] == 1
    print(json.dumps([str(warning.message) for warning in caught]))
    """)
    assert len(messages) == 1 and "another CUPTI client" in messages[0]


def test_only_one_profile_captures(run: Run) -> None:
    run("""
    first, second = _core.Profiler(cupti=True), _core.Profiler(cupti=True)
    first.start()
    assert "in progress" in refused(second.start)
    cuda.launch()
    first.stop()
    assert first.store.event_count == 2 and second.store.event_count == 0 and cuda.count("finalized") == 1
    second.start()
    del second  # a profile that is dropped lets go of CUPTI
    assert cuda.count("finalized") == 2 and cuda.count("subscribed") == 2
    """)


# Failures -------------------------------------------------------------------------------------------------------------

REFUSED = """
    def why(*paths): return refused(lambda: _core.load_cupti(*paths))
    assert not _core.cuda_is_here()
"""


def test_a_missing_library_and_a_cupti_that_is_too_old_are_named(run: Run, tmp_path: Path) -> None:
    nowhere, text = tmp_path / "libnowhere.so", tmp_path / "text.so"
    text.write_text("not a library")
    driver, missing, wrong, unloaded, old = run(REFUSED, f"""
    messages = [why(LIBRARY, {str(nowhere)!r}), why({str(nowhere)!r}, LIBRARY), why({str(text)!r}, LIBRARY)]
    messages.append(refused(_core.Profiler(cupti=True).start))
    cuda = Cuda(LIBRARY)
    cuda.set("version", 18)
    messages.append(why(LIBRARY, LIBRARY))
    print(json.dumps(messages))
    cuda.set("version", 19)
    assert why(LIBRARY, LIBRARY) == "" and _core.cuda_is_here()  # a better path works afterwards
    """, load=False)  # fmt: skip
    assert str(nowhere) in driver and "driver" in driver and str(nowhere) in missing and "nvidia-cuda-cupti" in missing
    assert str(text) in wrong and "not loaded" in unloaded
    assert "18" in old and "19" in old and "CUDA 12.0" in old and "nvidia-cuda-cupti" in old


@pytest.mark.parametrize("function", ["cuptiFinalize", "cuptiActivityGetNextRecord", "cuCtxSynchronize"])
def test_a_missing_function_is_named(tmp_path: Path, function: str) -> None:
    (message,) = run_with_fake(build(tmp_path, function), REFUSED, """
    print(json.dumps([why(LIBRARY, LIBRARY)]))
    """, load=False)  # fmt: skip
    assert function in message and ("update the driver" if function == "cuCtxSynchronize" else "pip install") in message


def test_functions_of_newer_cuptis_are_optional(tmp_path: Path) -> None:
    newer = ["cuptiSubscribe_v2", "cuptiActivityRegisterTimestampCallback", "cuptiActivityEnableDriverApi",
             "cuptiActivityEnableRuntimeApi", "cuptiActivitySetAttribute"]  # fmt: skip
    table = run_with_fake(build(tmp_path, *newer), "OPTIONS = {}", LONG_OP, "print(json.dumps(rows(prof)))")
    assert table["flopscope::sin"]["self_device_time_total"] == 12 and table["cudaLaunchKernel"]["count"] == 3


def test_a_failed_gpu_is_reported_and_the_table_remains(run: Run) -> None:
    message, table = run("""
    prof = fs.profile(timer="cupti")
    prof.start()
    cuda.launch("kernel", 2000)
    cuda.fail("cuCtxSynchronize", 700)
    message = refused(prof.stop)
    assert cuda.count("finalized") == 1
    print(json.dumps([message, rows(prof)]))
    """)
    assert "700" in message and table["kernel @cuda"]["self_device_time_total"] == 2


@pytest.mark.parametrize("leave", ["os._exit(0)", "sys.exit(0)", "pass"])
def test_a_forked_child_does_not_use_cupti(run: Run, leave: str) -> None:
    run(f"""
    with fs.profile(timer="cupti") as prof:
        cuda.launch()
        assert _core.cuda_is_here()
        asked = cuda.count("initialized")
        pid = os.fork()
        if pid == 0:
            with fs.profile():  # which looks for a device
                pass
            assert cuda.count("initialized") == asked and not _core.cuda_is_here()
            {leave}
        else:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            cuda.launch()
    if pid == 0:
        assert cuda.count("finalized") == 0
        assert "fork" in refused(_core.Profiler(cupti=True).start)
    else:
        assert cuda.count("finalized") == 1 and rows(prof)["kernel @cuda"]["count"] == 2
    """)
