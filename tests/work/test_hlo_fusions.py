"""What fusions compute, read and write, against counts by hand."""

import math

import pytest
from helpers.hlo_texts import ADD, fused, step, steps

import flopscope as fs


def test_a_fusion_computes_its_body_and_moves_parameters_and_result_once() -> None:
    row = fused(
        """e = f32[8,16] exponential(x)
        b = f32[8,16] broadcast(y), dimensions={1}
        s = f32[8,16] multiply(e, b)
        t = f32[8,16] add(s, e)""",
        {"x": "f32[8,16]", "y": "f32[16]"},
        "f32[8,16]",
    )
    assert (row.flops, row.product_flops) == (3 * 128, 0)
    assert (row.bytes_read, row.bytes_written) == (4 * (128 + 16), 4 * 128)


def test_products_within_a_fusion_are_product_flops() -> None:
    row = fused(
        """u = bf16[32,64] convert(x)
        d = bf16[32,24] dot(u, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        t = bf16[32,24] tanh(d)""",
        {"x": "s8[32,64]", "w": "bf16[64,24]"},
        "bf16[32,24]",
        kind="kCustom",
    )
    assert (row.product_flops, row.flops) == (2 * 32 * 64 * 24, 2 * 32 * 64 * 24 + 32 * 24)
    assert (row.bytes_read, row.bytes_written) == (32 * 64 + 2 * 64 * 24, 2 * 32 * 24)


def test_a_product_of_vectors_that_xla_made_sums_of_is_one() -> None:
    """Scores of one query, as XLA's GPU compiler writes a small dot: both parts keep its name. A sum that the program
    itself wrote is none, with the same instructions."""
    named = ', metadata={op_name="jit(f)/attention/bqhd,bkhd->bhqk/dot_general"}'
    body = f"""wide = f32[8,16,64] convert(q)
        each = f32[8,16,256,64] broadcast(wide), dimensions={{0,1,3}}
        keys = f32[8,16,256,64] convert(k){named}
        p = f32[8,16,256,64] multiply(each, keys){named}
        zero = f32[] constant(0)
        s = f32[8,16,256] reduce(p, zero), dimensions={{3}}, to_apply=add{named}
        t = f32[8,16,256] tanh(s)"""
    shapes = {"q": "bf16[8,16,64]", "k": "bf16[8,16,256,64]"}
    row = fused(body, shapes, "f32[8,16,256]", ADD)
    product = 2 * 8 * 16 * 256 * 64
    assert (row.product_flops, row.flops) == (product, product + 8 * 16 * 256)
    halves = body.replace(
        "f32[8,16,256] reduce(p, zero), dimensions={3}", "f32[8,16,256,2] reduce(halves, zero), dimensions={4}"
    )
    halves = halves.replace("zero =", "halves = f32[8,16,256,2,32] bitcast(p)\nzero =").replace(
        "t = f32[8,16,256] tanh(s)", f"r = f32[8,16,256] reduce(s, zero), dimensions={{3}}, to_apply=add{named}"
    )
    split = fused(halves, shapes, "f32[8,16,256]", ADD)
    assert (split.product_flops, split.flops) == (product, product + 8 * 16 * 256 * 2), "sums of two sums"
    own = fused(body.replace("dot_general", "reduce_sum"), shapes, "f32[8,16,256]", ADD)
    assert (own.product_flops, own.flops) == (0, row.flops)


@pytest.mark.parametrize(
    ("body", "operands", "result", "read", "written"),
    [
        ("s = f32[1,16] slice(x), slice={[3:4], [0:16]}\ny = f32[1,16] negate(s)", ["x"], "f32[1,16]", 64, 64),
        ("n = f32[8,16] negate(x)\ny = f32[1,16] slice(n), slice={[3:4], [0:16]}", ["x"], "f32[1,16]", 64, 64),
        (
            "a = f32[2,16] slice(x), slice={[0:2], [0:16]}\nb = f32[2,16] slice(x), slice={[4:6], [0:16]}\n"
            "y = f32[2,16] add(a, b)",
            ["x"],
            "f32[2,16]",
            256,
            128,
        ),
        ("y = f32[2,16] dynamic-slice(x, i, i), dynamic_slice_sizes={2,16}", ["x", "i"], "f32[2,16]", 132, 128),
        (
            "y = f32[3,16] gather(x, r), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
            "index_vector_dim=1, slice_sizes={1,16}",
            ["x", "r"],
            "f32[3,16]",
            192 + 12,
            192,
        ),
        # a second use needs all
        (
            "s = f32[1,16] slice(x), slice={[3:4], [0:16]}\nr = f32[16] bitcast(s)\n"
            "b = f32[8,16] broadcast(r), dimensions={1}\ny = f32[8,16] add(x, b)",
            ["x"],
            "f32[8,16]",
            512,
            512,
        ),
        ("y = f32[128] bitcast(x)", ["x"], "f32[128]", 512, 512),
        ("t = f32[16,8] transpose(x), dimensions={1,0}\ny = f32[16,2] slice(t), slice={[0:16], [0:2]}", ["x"],
         "f32[16,2]", 128, 128),
        ("z = f32[] constant(0)\ny = f32[8,20] pad(x, z), padding=0_0x2_2", ["x"], "f32[8,20]", 512, 640),
        ("z = f32[] constant(0)\ny = f32[8,16] broadcast(z), dimensions={}", ["x"], "f32[8,16]", 0, 512),
        ("y = f32[16,16] concatenate(x, x), dimensions={0}", ["x"], "f32[16,16]", 512, 1024),
        ("z = f32[] constant(0)\ny = f32[8] reduce(x, z), dimensions={1}, to_apply=add", ["x"], "f32[8]", 512, 32),
        # half of a reduction needs half of its input
        (
            "z = f32[] constant(0)\nr = f32[8] reduce(x, z), dimensions={1}, to_apply=add\n"
            "y = f32[4] slice(r), slice={[0:4]}",
            ["x"],
            "f32[4]",
            256,
            16,
        ),
        ("n = f32[8,16] negate(x)\ne = f32[8,16] exponential(x)\ny = (f32[8,16], f32[8,16]) tuple(n, e)", ["x"],
         "(f32[8,16], f32[8,16])", 512, 1024),
    ],
)  # fmt: skip
def test_a_fusion_reads_what_its_result_needs(
    body: str, operands: list[str], result: str, read: float, written: float
) -> None:
    shapes = {"x": "f32[8,16]", "i": "s32[]", "r": "s32[3,1]"}
    row = fused(body, {name: shapes[name] for name in operands}, result, ADD)
    assert (row.bytes_read, row.bytes_written) == (read, written)


CACHE = {"cache": "bf16[4,1024,64]", "new": "bf16[4,1,64]", "i": "s32[]"}


def test_an_update_in_place_reads_and_writes_only_the_update() -> None:
    body = "z = s32[] constant(0)\ny = bf16[4,1024,64] dynamic-update-slice(cache, new, z, i, z)"
    row = fused(body, CACHE, "bf16[4,1024,64]")
    assert (row.bytes_read, row.bytes_written) == (512 + 4, 512)


def test_an_update_in_place_may_read_the_part_before() -> None:
    body = """z = s32[] constant(0)
        old = bf16[4,1,64] dynamic-slice(cache, z, i, z), dynamic_slice_sizes={4,1,64}
        sum = bf16[4,1,64] add(old, new)
        y = bf16[4,1024,64] dynamic-update-slice(cache, sum, z, i, z)"""
    row = fused(body, CACHE, "bf16[4,1024,64]")
    assert (row.flops, row.bytes_read, row.bytes_written) == (256, 1024 + 4, 512)


def test_an_update_through_bitcasts_is_in_place() -> None:
    body = """z = s32[] constant(0)
        flat = bf16[4096,64] bitcast(cache)
        one = bf16[4,64] bitcast(new)
        updated = bf16[4096,64] dynamic-update-slice(flat, one, i, z)
        y = bf16[4,1024,64] bitcast(updated)"""
    row = fused(body, CACHE, "bf16[4,1024,64]")
    assert (row.bytes_read, row.bytes_written) == (512 + 4, 512)


def test_two_updates_of_one_parameter_are_in_place() -> None:
    body = """z = s32[] constant(0)
        a = bf16[4,1024,64] dynamic-update-slice(cache, new, z, i, z)
        y = bf16[4,1024,64] dynamic-update-slice(a, new, z, z, z)"""
    row = fused(body, CACHE, "bf16[4,1024,64]")
    assert (row.bytes_read, row.bytes_written) == (512 + 4, 1024)


def test_an_update_of_a_computed_array_writes_all() -> None:
    body = """z = s32[] constant(0)
        zero = bf16[] constant(0)
        empty = bf16[4,1024,64] broadcast(zero), dimensions={}
        y = bf16[4,1024,64] dynamic-update-slice(empty, new, z, i, z)"""
    row = fused(body, {"new": "bf16[4,1,64]", "i": "s32[]"}, "bf16[4,1024,64]")
    assert (row.bytes_read, row.bytes_written) == (512 + 4, 4 * 1024 * 64 * 2)


def test_an_updated_array_that_is_reduced_is_read() -> None:
    body = """z = s32[] constant(0)
        zero = f32[] constant(0)
        a = f32[8,16] dynamic-update-slice(x, u, i, z)
        y = f32[8] reduce(a, zero), dimensions={1}, to_apply=add"""
    row = fused(body, {"x": "f32[8,16]", "u": "f32[1,16]", "i": "s32[]"}, "f32[8]", ADD)
    assert (row.flops, row.bytes_read, row.bytes_written) == (128, 512 + 4, 32)  # the updated row is not x's


LAST = "last {\n  a = f32[] parameter(0)\n  ROOT b = f32[] parameter(1)\n}\n"
ROWS = {"x": "f32[1000,64]", "i": "s32[10,1]", "u": "f32[10,64]"}
SCATTERED = (
    "y = f32[1000,64] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply="
)


def test_a_scatter_in_place_reads_what_it_adds_to() -> None:
    row = fused(SCATTERED + "add", ROWS, "f32[1000,64]", ADD)
    assert (row.flops, row.bytes_read, row.bytes_written) == (640, 2 * 2560 + 40, 2560)


def test_a_scatter_in_place_reads_nothing_that_it_replaces() -> None:
    row = fused(SCATTERED + "last", ROWS, "f32[1000,64]", LAST)
    assert (row.flops, row.bytes_read, row.bytes_written) == (0, 2560 + 40, 2560)


def test_scatters_and_updates_without_a_fusion_are_in_place() -> None:
    parameters = "\n".join(f"{name} = {shape} parameter({i})" for i, (name, shape) in enumerate(ROWS.items()))
    row = step(parameters + "\n" + SCATTERED + "add", ADD)
    assert (row.flops, row.bytes_read, row.bytes_written) == (640, 2 * 2560 + 40, 2560)
    row = step(
        "x = f32[8,16] parameter(0)\nu = f32[1,16] parameter(1)\ni = s32[] parameter(2)\n"
        "y = f32[8,16] dynamic-update-slice(x, u, i, i)"
    )
    assert (row.bytes_read, row.bytes_written) == (64 + 4, 64)


def test_more_updates_than_elements_write_each_element_once() -> None:
    rows = {"x": "f32[10,64]", "i": "s32[1000,1]", "u": "f32[1000,64]"}
    row = fused(SCATTERED.replace("f32[1000,64]", "f32[10,64]") + "add", rows, "f32[10,64]", ADD)
    assert (row.flops, row.bytes_read, row.bytes_written) == (64000, 2560 + 256000 + 4000, 2560)


def test_an_operand_that_is_passed_twice_is_read_once() -> None:
    body = "body {\n  a = f32[8] parameter(0)\n  b = f32[8] parameter(1)\n  ROOT c = f32[8] multiply(a, b)\n}\n"
    row = step("x = f32[8] parameter(0)\ny = f32[8] fusion(x, x), kind=kLoop, calls=body", body)
    assert (row.bytes_read, row.bytes_written) == (32, 32)


def test_an_operand_and_its_bitcast_are_read_once() -> None:
    body = (
        "body {\n  a = f32[8] parameter(0)\n  b = f32[2,4] parameter(1)\n  c = f32[2,4] bitcast(a)\n"
        "  ROOT d = f32[2,4] add(b, c)\n}\n"
    )
    row = step(
        "x = f32[8] parameter(0)\nz = f32[2,4] bitcast(x)\ny = f32[2,4] fusion(x, z), kind=kLoop, calls=body", body
    )
    assert (row.bytes_read, row.bytes_written) == (32, 32)


def test_a_nested_fusion_needs_what_its_body_needs() -> None:
    inner = """
inner {
  p = f32[8,16] parameter(0)
  q = f32[16] parameter(1)
  s = f32[1,16] slice(p), slice={[0:1], [0:16]}
  r = f32[16] bitcast(s)
  ROOT m = f32[16] multiply(r, q)
}
"""
    row = fused(
        "n = f32[16] fusion(x, y), kind=kLoop, calls=inner\nt = f32[16] tanh(n)",
        {"x": "f32[8,16]", "y": "f32[16]"},
        "f32[16]",
        inner,
    )
    assert (row.flops, row.bytes_read, row.bytes_written) == (32, 128, 64)


def test_a_fusion_whose_body_is_missing_has_unknown_flops_and_at_most_all_bytes() -> None:
    row = step("x = f32[8] parameter(0)\ny = f32[4] fusion(x), kind=kLoop, calls=nowhere")
    assert math.isnan(row.flops) and (row.bytes_read, row.bytes_written) == (32, 16)


def test_a_fusion_that_starts_asynchronously_is_counted_at_its_start() -> None:
    body = "body {\n  a = f32[8,16] parameter(0)\n  ROOT s = f32[1,16] slice(a), slice={[0:1], [0:16]}\n}\n"
    rows = steps(
        """x = f32[8,16] parameter(0)
        s = ((f32[8,16]), f32[1,16], u32[]) fusion-start(x), kind=kLoop, calls=body
        y = f32[1,16] fusion-done(s)""",
        body,
    )
    assert [(row.opcode, row.bytes_read, row.bytes_written) for row in rows] == [("fusion-start", 64, 64)]


def test_only_the_part_of_a_body_that_is_needed_is_computed() -> None:
    body = "e = f32[8,16] exponential(x)\ny = f32[1,16] slice(e), slice={[0:1], [0:16]}"
    assert fused(body, {"x": "f32[8,16]"}, "f32[1,16]").flops == 16


def test_a_library_call_on_slices_reads_them() -> None:
    """XLA's address computations: a product on a slice of an operand, written into a slice of its result."""
    config = '"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]'
    row = fused(
        f"""s = f32[1,32,64] slice(x), slice={{[2:3], [0:32], [0:64]}}
        a = f32[32,64] bitcast(s)
        c = (f32[32,24], s8[1024]) custom-call(a, w), custom_call_target="__cublas$gemm", """
        f"""backend_config={{"gemm_backend_config":{{"dot_dimension_numbers":{{{config}}}}}}}
        g = f32[32,24] get-tuple-element(c), index=0
        b = f32[1,32,24] bitcast(g)
        z = s32[] constant(0)
        y = f32[8,32,24] dynamic-update-slice(o, b, i, z, z)""",
        {"x": "f32[8,32,64]", "w": "f32[64,24]", "o": "f32[8,32,24]", "i": "s32[]"},
        "f32[8,32,24]",
        kind="kCustom",
    )
    assert row.product_flops == 2 * 32 * 64 * 24
    assert (row.bytes_read, row.bytes_written) == (4 * (32 * 64 + 64 * 24 + 1), 4 * 32 * 24)


def test_the_scratch_memory_of_a_fusion_counts_nothing() -> None:
    row = fused(
        """d = f32[32,24] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        s = s8[4096] custom-call(), custom_call_target="__nop"
        t = (f32[32,24], s8[4096]) tuple(d, s)""",
        {"a": "f32[32,64]", "b": "f32[64,24]"},
        "(f32[32,24], s8[4096])",
        kind="kCustom",
    )
    assert (row.flops, row.bytes_written) == (2 * 32 * 64 * 24, 4 * 32 * 24)


BODIES = """
cond {
  c = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  n = s32[] constant(5)
  ROOT l = pred[] compare(i, n), direction=LT
}
loop {
  s = (s32[], f32[8]) parameter(0)
  j = s32[] get-tuple-element(s), index=0
  v = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  k = s32[] add(j, one)
  w = f32[8] tanh(v)
  ROOT t = (s32[], f32[8]) tuple(k, w)
}
"""
WHILE = "x = (s32[], f32[8]) parameter(0)\ny = (s32[], f32[8]) while(x), condition=cond, body=loop"


def test_a_loop_runs_its_body_as_often_as_the_compiler_counted() -> None:
    """The condition is not computed then: a recorded program launched no kernel of it."""
    rows = steps(WHILE + ', backend_config={"known_trip_count":{"n":"5"}}', BODIES)
    assert [(row.name, row.calls, row.flops) for row in rows] == [("k", 5, 0), ("w", 5, 40)]
    assert [row.bytes_read for row in rows] == [5 * 8, 5 * 32]


def test_a_loop_without_a_count_has_unknown_calls() -> None:
    rows = steps(WHILE, BODIES)
    assert [row.name for row in rows] == ["l", "k", "w"]
    assert all(math.isnan(row.calls) and math.isnan(row.flops) for row in rows)


def test_loops_within_loops_multiply() -> None:
    outer = (
        BODIES
        + """
again {
  p = (s32[], f32[8]) parameter(0)
  ROOT q = (s32[], f32[8]) while(p), condition=cond, body=loop, backend_config={"known_trip_count":{"n":"5"}}
}
"""
    )
    rows = steps(WHILE.replace("loop", "again") + ', backend_config={"known_trip_count":{"n":"7"}}', outer)
    assert [(row.name, row.calls) for row in rows] == [("k", 35), ("w", 35)]


def test_numbers_beyond_any_program_are_unknown() -> None:
    """Loops of 2^62 trips, twelve deep, and a map of as many elements."""
    count = 2**62
    bodies = BODIES + "f {\n  fp = f32[] parameter(0)\n  ROOT fr = f32[] tanh(fp)\n}\n"
    inner = "loop"
    for i in range(12):
        bodies += (
            f"w{i} {{\n  p{i} = (s32[], f32[8]) parameter(0)\n  ROOT q{i} = (s32[], f32[8]) while(p{i}), "
            f'condition=cond, body={inner}, backend_config={{"known_trip_count":{{"n":"{count}"}}}}\n}}\n'
        )
        inner = f"w{i}"
    rows = steps(f"x = (s32[], f32[8]) parameter(0)\ny = (s32[], f32[8]) call(x), to_apply={inner}", bodies)
    assert [row.name for row in rows] == ["k", "w"] and all(math.isnan(row.flops) for row in rows)
    maps = bodies
    for i in range(7):
        maps += f"m{i} {{\n  a{i} = f32[{count}] parameter(0)\n  ROOT b{i} = f32[{count}] map(a{i}), to_apply="
        maps += f"{f'm{i - 1}' if i else 'f'}\n}}\n"
    row = step(f"x = f32[{count}] parameter(0)\ny = f32[{count}] map(x), to_apply=m6", maps)
    assert math.isnan(row.flops) and row.product_flops == 0 and row.bytes_read == 4.0 * count


def test_branches_and_calls_are_listed_where_they_run() -> None:
    bodies = "\n".join(f"f{i} {{\n  p{i} = f32[8] parameter(0)\n  ROOT r{i} = f32[8] {opcode}(p{i})\n}}"
                       for i, opcode in enumerate(["sine", "cosine", "tanh"]))  # fmt: skip
    rows = steps(
        """i = s32[] parameter(0)
        x = f32[8] parameter(1)
        a = f32[8] call(x), to_apply=f2
        b = f32[8] conditional(i, a, a), branch_computations={f0, f1}
        c = f32[8] call(b), to_apply=f2""",
        bodies,
    )
    assert [(row.name, row.calls) for row in rows] == [("r2", 1), ("r0", 1), ("r1", 1), ("r2", 1)]


def test_an_asynchronous_computation_runs_once() -> None:
    body = "wrapped {\n  p = f32[8] parameter(0)\n  ROOT r = f32[8] sine(p)\n}\n"
    rows = steps(
        """x = f32[8] parameter(0)
        s = ((f32[8]), f32[8], s32[]) async-start(x), calls=wrapped
        u = ((f32[8]), f32[8], s32[]) async-update(s)
        y = f32[8] async-done(u)""",
        body,
    )
    assert [(row.name, row.calls) for row in rows] == [("r", 1)]


def test_a_schedule_without_end_is_refused() -> None:
    """Computations that call the one before twice, forty times over: 2^40 instructions."""
    bodies = "f0 {\n  p0 = f32[8] parameter(0)\n  ROOT r0 = f32[8] sine(p0)\n}\n"
    for i in range(1, 41):
        bodies += (
            f"f{i} {{\n  p{i} = f32[8] parameter(0)\n  a{i} = f32[8] call(p{i}), to_apply=f{i - 1}\n"
            f"  ROOT b{i} = f32[8] call(a{i}), to_apply=f{i - 1}\n}}\n"
        )
    with pytest.raises(ValueError, match=r"the schedule has 1\.1e\+12 instructions"):
        steps("x = f32[8] parameter(0)\ny = f32[8] call(x), to_apply=f40", bodies)
    row = step("x = f32[8] parameter(0)\ny = f32[8] fusion(x), kind=kLoop, calls=f40", bodies)
    assert row.flops == 2**40 * 8


def test_empty_computations_are_not_walked() -> None:
    bodies = "f0 {\n  ROOT p0 = f32[8] parameter(0)\n}\n"
    for i in range(1, 41):
        bodies += (
            f"f{i} {{\n  p{i} = f32[8] parameter(0)\n  a{i} = f32[8] call(p{i}), to_apply=f{i - 1}\n"
            f"  ROOT b{i} = f32[8] call(a{i}), to_apply=f{i - 1}\n}}\n"
        )
    assert steps("x = f32[8] parameter(0)\ny = f32[8] call(x), to_apply=f40", bodies) == []


def test_sums_of_rows_are_those_of_the_program() -> None:
    """A layer forward: product, bias and activation, softmax; by hand."""
    body = """
layer {
  x = f32[64,128] parameter(0)
  w = f32[128,256] parameter(1)
  b = f32[256] parameter(2)
  d = f32[64,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[64,256] broadcast(b), dimensions={1}
  s = f32[64,256] add(d, c)
  ROOT t = f32[64,256] tanh(s)
}
"""
    frame = fs.work_of_hlo(
        "HloModule m, is_scheduled=true\n" + body + "ENTRY e {\n  p = f32[64,128] parameter(0)\n"
        "  q = f32[128,256] parameter(1)\n  r = f32[256] parameter(2)\n"
        "  ROOT f = f32[64,256] fusion(p, q, r), kind=kOutput, calls=layer\n}\n"
    )
    assert frame["product_flops"].sum() == 2 * 64 * 128 * 256
    assert frame["flops"].sum() == 2 * 64 * 128 * 256 + 2 * 64 * 256
