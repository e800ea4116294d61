"""What --json writes and to_dict() returns: valid by the printed schema, with units, reasons and ids."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT
from helpers.recordings import FAULTS
from helpers.run_programs import run, script

import flopscope as fs
from flopscope.cli.program import main
from flopscope.cli.schema import DOCUMENTS, document, schema
from flopscope.support.documents import FORMAT
from flopscope.support.package import VERSION

jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("referencing")

BEFORE, AFTER = (str(FAULTS / f"vocab_{when}.json.gz") for when in ("before", "after"))
RUN = ROOT / "tests" / "data" / "run7"
UNITS = re.compile(
    r"(_|^)(us|ns|ms|bytes|flops|flops_per_s|bytes_per_s|pct|share|seconds|mhz|watts|joules|ppm|per_s|khz)(_|$)"
)
COMMANDS = {
    "bench": ["bench", "--device", "cpu", "--size", "32", "--repeat", "2"], "devices": ["devices"],
    "table": ["table", BEFORE, "--group-by", "shape"], "table of kernels": ["table", BEFORE, "--kind", "kernel"],
    "table by step and stream": ["table", BEFORE, "--group-by", "name,step,stream"], "summary": ["summary", BEFORE],
    "summaries": ["summary", BEFORE, AFTER], "comparison": ["compare", BEFORE, AFTER],
    "comparison by shape": ["compare", BEFORE, AFTER, "--by", "shape", "--kind", "kernel"],
    "measurement": ["measure", "add", "64,64", "--device", "cpu", "--max-time", "0.05"],
    "ranks": ["ranks", str(RUN), "--workers", "1"],
}  # fmt: skip


def content_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda name: pytest.fail(name))
    return found


def require_valid(content: dict[str, Any], kind: str) -> None:
    jsonschema.Draft202012Validator(schema()).validate(content)  # it is of one kind only
    jsonschema.Draft202012Validator(schema(kind)).validate(content)
    assert (content["format"], content["version"], content["flopscope"]) == (f"flopscope.{kind}", FORMAT, VERSION)
    for one in content["traces"] if kind == "summaries" else [content]:
        require_reasons(one)
    json.dumps(content, allow_nan=False)


def nulls(content: Any, path: str = "") -> set[str]:
    """Return the paths of what is null, without the numbers of rows."""
    if isinstance(content, dict):
        return set().union(*(nulls(value, f"{path}.{name}") for name, value in content.items() if name != "why"))
    if isinstance(content, list):
        return set().union(*(nulls(value, path) for value in content))
    return set() if content is not None else {path.removeprefix(".")}


def require_reasons(content: dict[str, Any]) -> None:
    """Each null has a reason, of its field or of one around it, and each reason a null."""
    found, reasons = nulls(content), set(content["why"])
    explained = {path for path in found for reason in reasons if path == reason or path.startswith(f"{reason}.")}
    mapped = {path for path in found - explained if any(within(path, reason) for reason in reasons)}
    assert found == explained | mapped and all(content["why"].values())
    assert reasons == set() or found != set()


def within(path: str, reason: str) -> bool:
    """Whether a path is that of the reason but for the names of a mapping: "shares.measured.x" for "shares.x"."""
    parts, wanted = path.split("."), reason.split(".")
    return parts[0] == wanted[0] and parts[-1] == wanted[-1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_writes_a_valid_document(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind, file = name.split(" ")[0], tmp_path / "out.json"
    assert main([*COMMANDS[name], "--json", str(file)]) == 0
    with_json = capsys.readouterr().out
    require_valid(content_of(file), kind)
    if kind not in ("bench", "measurement"):
        assert main(COMMANDS[name]) == 0 and capsys.readouterr().out == with_json


def test_a_program_that_ran_is_summarized(tmp_path: Path) -> None:
    program = script(tmp_path, "import flopscope as fs\nx = fs.ones((64, 64))\nfs.matmul(x, x)\n")
    ended = run(tmp_path, "--no-report", "--json", "out.json", program)
    assert ended.returncode == 0, ended.stderr
    require_valid(content_of(tmp_path / "out.json"), "summary")


def test_every_result_is_a_valid_document() -> None:
    trace = fs.load_trace(BEFORE)
    x = fs.ones((8, 8), device="cpu")
    results = {
        "table": trace.key_averages(), "summary": trace.summary(), "advice": trace.advice(),
        "comparison": fs.compare(trace, fs.load_trace(AFTER)), "device": fs.devices()[0],
        "measurement": fs.measure(fs.add, x, x, max_time=0.02),
        "times": fs.compare_times(lambda: fs.add(x, x), lambda: fs.mul(x, x), max_time=0.05),
        "sweep": fs.sweep("add", [16, 64], device="cpu", max_time=0.02, progress=False),
        "stragglers": fs.load_ranks(str(RUN), workers=1).stragglers(),
    }  # fmt: skip
    for kind, result in results.items():
        require_valid(result.to_dict(), kind)
    with_samples = results["measurement"].to_dict(samples=True)
    require_valid(with_samples, "measurement")
    assert len(with_samples["samples_us"]) == with_samples["n"]
    assert with_samples["median_us"] == results["measurement"].median


@pytest.mark.parametrize("name", ["vocab", "pointwise", "graph"])
def test_evidence_names_its_row_and_an_event(name: str) -> None:
    path = FAULTS / f"{name}_before.json.gz"
    if not path.exists():
        pytest.skip(f"no recording of the fault {name}")
    trace = fs.load_trace(path)
    table = trace.key_averages(group_by_input_shape=True)
    by_id = {row["id"]: row for row in table.to_dict()["rows"]}
    assert len(by_id) == len(table)  # different rows have different ids
    ones = [one for advice in trace.advice().to_dict()["advice"] for one in advice["evidence"]]
    tied = [one for one in ones if one["row"] is not None]
    assert name != "vocab" or tied
    for one in tied:
        assert (by_id[one["row"]]["key"], by_id[one["row"]]["input_shapes"]) == (one["op"], one["shapes"])
        assert trace.events()[one["event"]].name == one["op"]


def test_ids_do_not_depend_on_order_and_selection() -> None:
    table = fs.load_trace(BEFORE).key_averages()
    ids = {row["key"] + row["device_type"]: row["id"] for row in table.to_dict()["rows"]}
    for other in (table.sorted("self_cpu_time_total"), table.of_kind("kernel"), fs.load_trace(BEFORE).key_averages()):
        assert len(other) and all(ids[r["key"] + r["device_type"]] == r["id"] for r in other.to_dict()["rows"])
    assert ids.keys() != set() and len({*ids.values()}) == len(ids)


def test_the_units_of_numbers_are_in_their_keys() -> None:
    table = fs.load_trace(BEFORE).key_averages()
    row = next(row for row in table.to_dict()["rows"] if row["key"] == "aten::mm")
    own = next(one for one in table if one.key == "aten::mm")
    assert row["self_device_time_total_us"] == own.self_device_time_total
    assert row["self_cpu_memory_usage_bytes"] == own.self_cpu_memory_usage
    assert (row["flops"], row["bytes_total_moved"]) == (own.flops, own.bytes_total_moved)
    found = [found for kind in DOCUMENTS for found in with_units(schema(kind))]
    assert len(found) > 100 and [key for key, unit in found if not UNITS.search(key)] == []


def with_units(part: Any, key: str = "") -> list[tuple[str, str]]:
    """Return the keys of a schema whose values have a unit, and the units; calls, modules, elements are counts."""
    if isinstance(part, list):
        return [found for one in part for found in with_units(one)]
    if not isinstance(part, dict):
        return []
    own = [(key, part["unit"])] if isinstance(part.get("unit"), str) else []
    own = [one for one in own if one[1] not in ("calls", "modules", "elements")]
    return own + [found for name, one in part.items() for found in with_units(one, name)]


def test_the_command_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    whole = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(whole)
    assert {*whole["$defs"]} == {*DOCUMENTS} and len(whole["oneOf"]) == len(DOCUMENTS)
    for kind in DOCUMENTS:
        assert document(kind).kind == kind and main(["schema", kind]) == 0
        one = json.loads(capsys.readouterr().out)
        jsonschema.Draft202012Validator.check_schema(one)
        assert whole["$defs"][kind].items() <= one.items()


def test_a_wrong_document_is_invalid() -> None:
    content = fs.load_trace(BEFORE).key_averages().to_dict()
    validator = jsonschema.Draft202012Validator(schema("table"))
    first = content["rows"][0]
    for wrong in ({**first, "flops": "many"}, {**first, "other": 1}, {k: v for k, v in first.items() if k != "id"}):
        assert not validator.is_valid({**content, "rows": [wrong]})
    assert not validator.is_valid({**content, "version": FORMAT + 1})
