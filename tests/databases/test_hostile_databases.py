"""Databases that are damaged, forged or made to do harm: an error or what can be read, never a crash."""

import gzip
import random
import sqlite3
import warnings
from pathlib import Path
from typing import Any

import pytest
from helpers.captures import KERNEL, RUNTIME, Nsys, change, global_tid
from helpers.nsys_programs import ADD, MOCK, SGEMM, device_rows, graph_program, program

import flopscope as fs


def load(path: Path) -> Any:
    """Load a file and compute its table; warnings are allowed, and so is ValueError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            prof = fs.load_trace(path)
            prof.key_averages().table()
            prof.accounting()
        except ValueError as problem:
            assert str(path) in str(problem)
            return None
        return prof


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [b"", b"SQLite format 3\0", b"SQLite format 3\0" + bytes(100), b"SQLite format 3\0" + bytes(5000), b"{}"],
    ids=["empty", "magic", "zeros", "pages of zeros", "json"],
)
def test_what_is_no_database_is_an_error(content: bytes, reader: str, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.sqlite"):
        fs.load_trace(path)


def test_truncations(reader: str, tmp_path: Path) -> None:
    whole = gzip.decompress(MOCK.read_bytes())
    path = tmp_path / "x.sqlite"
    sizes = [*range(0, 4096, 199), *range(4096, len(whole), 9173), len(whole) - 1]
    outcomes = set()
    for size in sizes:
        path.write_bytes(whole[:size])
        prof = load(path)
        outcomes.add(prof is None)
        if prof is not None:
            assert len(prof) <= 44
    assert True in outcomes


def test_flipped_bytes(reader: str, tmp_path: Path) -> None:
    whole = program().write(tmp_path / "whole.sqlite").read_bytes()
    path = tmp_path / "x.sqlite"
    numbers = random.Random(1)
    for _ in range(150):
        content = bytearray(whole)
        for _ in range(numbers.choice([1, 3, 30])):
            content[numbers.randrange(len(content))] = numbers.randrange(256)
        path.write_bytes(content)
        load(path)


def test_a_damaged_table_is_read_up_to_the_damage_and_reported(reader: str, tmp_path: Path) -> None:
    made = Nsys()
    for index in range(2000):
        made.kernel(f"kernel_{index % 3}", 10 * index, 10 * index + 5)
        made.call("cudaLaunchKernel_v7000", 10 * index, 10 * index + 1, index + 1)
    path = made.write(tmp_path / "x.sqlite")
    page = sqlite3.connect(path).execute("PRAGMA page_size").fetchone()[0]
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // page * page
    content[middle : middle + 2 * page] = b"\xff" * (2 * page)
    path.write_bytes(content)
    message = r"(KERNEL|RUNTIME) ends early, after [\d,]+ rows: database disk image is malformed"
    with pytest.warns(UserWarning, match=message):
        prof = fs.load_trace(path)
    assert prof.report["truncated"] and 0 < len(prof) < 4000


def test_a_log_beside_the_file_or_the_file_that_a_link_names_is_reported(tmp_path: Path) -> None:
    path = program().write(tmp_path / "x.sqlite")
    (tmp_path / "x.sqlite-wal").write_bytes(b"frames")
    (tmp_path / "folder").mkdir()
    link = tmp_path / "folder" / "link.sqlite"
    link.symlink_to(path)
    with pytest.warns(UserWarning, match=r"x\.sqlite-wal holds 6 bytes of changes that were not read"):
        fs.load_trace(link)
    writer = sqlite3.connect(tmp_path / "y.sqlite", isolation_level=None)  # all of its tables are in its log
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute(f"CREATE TABLE {KERNEL} (start, end)")
    with pytest.raises(ValueError, match=r"its tables: none; y\.sqlite-wal holds [\d,]+ bytes of changes"):
        fs.load_trace(tmp_path / "y.sqlite")
    writer.close()


# Contents -------------------------------------------------------------------------------------------------------------


def test_negative_times_and_huge_counts(reader: str, tmp_path: Path) -> None:
    made = Nsys()
    made.kernel(ADD, -500, -400)
    made.kernel("ends before it starts", 100, 50)
    made.kernel("huge", 200, 300, gridX=1 << 40, blockX=-3, registersPerThread=1 << 50)
    made.copy(300, 310, bytes=1 << 62, copyKind=99, srcKind=-5, dstKind=1 << 33)
    made.fill(400, 410, bytes=-1, memKind=77)
    prof = made.load(tmp_path)
    assert device_rows(prof) == {
        ADD: (1, 100), "ends before it starts": (1, 0), "huge": (1, 100),
        "Memcpy <unknown> (Unknown -> Unknown)": (1, 10), "Memset (Unknown)": (1, 10),
    }  # fmt: skip


def test_names_that_are_missing_are_named_by_their_ids(reader: str, tmp_path: Path) -> None:
    made = program()
    path = change(made.write(tmp_path / "x.sqlite"), "DROP TABLE StringIds")
    found = device_rows(fs.load_trace(path))
    missing = {f"<string {made.strings[name]}>" for name in (SGEMM, ADD)}
    assert {key for key in found if key.startswith("<string ")} == missing


def test_long_and_strange_names(reader: str, tmp_path: Path) -> None:
    made = Nsys()
    made.kernel("n" * 1_000_000, 1, 2)
    made.kernel("zero\0byte", 3, 4)
    made.kernel("bidi \u202e and \x1b[31m", 5, 6)
    made.nvtx(", sizes = [" * 5000, 1, 2)
    made.nvtx("aten::mm, seq = " + "9" * 400 + ", op_id = 1", 3, 4)
    made.nvtx("aten::mm, op_id = 1, sizes = [" + "[" * 5000 + "]" * 5001, 5, 6)
    made.nvtx("aten::mm, op_id = 1, sizes = [[99999999999999999999, -4], [NaN]]", 7, 8)
    prof = made.load(tmp_path)
    assert set(device_rows(prof)) == {"n" * 65536, "zero", "bidi \u202e and \x1b[31m"}
    assert "\x1b" not in prof.key_averages().table()


def test_text_that_is_not_utf8(reader: str, tmp_path: Path) -> None:
    path = program().write(tmp_path / "x.sqlite")
    change(path, f"UPDATE StringIds SET value = CAST(x'6bff6b' AS TEXT) WHERE value = '{SGEMM}'")
    assert device_rows(fs.load_trace(path))["k\ufffdk"] == (2, 100)


def test_rows_with_too_long_values_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = Nsys()
    for index in range(5):
        made.nvtx(f"range {index}", 10 * index, 10 * index + 5)
    path = made.write(tmp_path / "x.sqlite")
    change(path, "UPDATE NVTX_EVENTS SET text = zeroblob(70000000) || 'x' WHERE start = 20")
    with pytest.warns(UserWarning, match=r"1 rows were omitted because a value in them is longer than 64 MB"):
        prof = fs.load_trace(path)
    assert [event.name for event in prof.events()] == ["range 0", "range 1", "range 3", "range 4"]


def test_cycles_of_many_clones_end(reader: str, tmp_path: Path) -> None:
    made = graph_program()
    for node in range(1000, 3000):
        made.node(node, 5, original=1000 + (node + 1) % 2000)
    for index in range(2000):
        made.kernel(ADD, 5000 + index, 5001 + index, 50, graphNodeId=1000 + index)
    with pytest.warns(UserWarning, match="2,000 kernels of CUDA graphs have no record of their capture"):
        assert len(made.load(tmp_path)) > 2000


# Nothing is run -------------------------------------------------------------------------------------------------------

VIEW = f"ALTER TABLE {KERNEL} RENAME TO old; CREATE VIEW {KERNEL} AS"
SCHEMAS = {
    "view": f"{VIEW} SELECT *, bomb() FROM old",
    "endless view": f"{VIEW} WITH RECURSIVE n(start) AS (VALUES(1) UNION ALL SELECT start + 1 FROM n) "
    "SELECT start, start + 1 AS end, 1 AS demangledName FROM n",
    "virtual table": f"DROP TABLE {KERNEL}; CREATE VIRTUAL TABLE {KERNEL} USING fts3(start, end, demangledName)",
    "trigger": f"CREATE TRIGGER t AFTER UPDATE ON {KERNEL} BEGIN SELECT load_extension('/tmp/x'); END",
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_views_triggers_and_virtual_tables_are_not_used(schema: str, reader: str, tmp_path: Path) -> None:
    prof = fs.load_trace(change(program().write(tmp_path / "x.sqlite"), SCHEMAS[schema]))
    assert (SGEMM in device_rows(prof)) == (schema == "trigger") and device_rows(prof)["Memset (Device)"] == (2, 10)


def test_the_file_is_not_changed(reader: str, tmp_path: Path) -> None:
    path = program().write(tmp_path / "x.sqlite")
    before, modified = path.read_bytes(), path.stat().st_mtime_ns
    path.chmod(0o444)
    fs.load_trace(path)
    assert path.read_bytes() == before and path.stat().st_mtime_ns == modified and sorted(tmp_path.iterdir()) == [path]


HARMLESS = {
    "generated column": f"ALTER TABLE {KERNEL} DROP COLUMN gridX; "
    f"ALTER TABLE {KERNEL} ADD COLUMN gridX AS (length(hex(zeroblob(400000000)))) VIRTUAL",
    "names": 'CREATE TABLE "a""b; DROP TABLE x" ("c""d", start); CREATE TABLE "MPI_""X_EVENTS" (start, end, nameId)',
}


@pytest.mark.parametrize("name", ["a b?c#d%20.sqlite", "x.sqlite?mode=rwc", "ü.sqlite", "file:x.sqlite"])
@pytest.mark.parametrize("schema", HARMLESS)
def test_generated_columns_and_strange_names_do_no_harm(schema: str, name: str, reader: str, tmp_path: Path) -> None:
    path = change(program().write(tmp_path / "x.sqlite"), HARMLESS[schema]).rename(tmp_path / name)
    assert device_rows(fs.load_trace(path))[SGEMM] == (2, 100)


@pytest.mark.parametrize("kind", ["limit", "compressed"])
def test_sizes_are_limited(kind: str, tmp_path: Path) -> None:
    path = program().write(tmp_path / "x.sqlite")
    size = path.stat().st_size
    if kind == "compressed":
        path.write_bytes(gzip.compress(path.read_bytes()))
    assert len(fs.load_trace(path, max_bytes=size)) == 30
    with pytest.raises(ValueError, match="the limit set by max_bytes"):
        fs.load_trace(path, max_bytes=size - 1)
    path.write_bytes(MOCK.read_bytes()[:10000])
    with pytest.raises(ValueError, match=r"x\.sqlite: the compressed file ends"):
        fs.load_trace(path)


def test_thousands_of_threads(reader: str, tmp_path: Path) -> None:
    made = Nsys()
    for thread in range(5000):
        made.call("cudaFree_v3020", thread, thread + 5, thread + 1, thread=thread)
        made.tables[RUNTIME][-1]["globalTid"] = global_tid(40 + thread % 3, thread)
    assert len(made.load(tmp_path)) == 5000
