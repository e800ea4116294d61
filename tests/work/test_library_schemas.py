"""Rows of other libraries' ops against the arguments that the libraries declare: in the sources of all versions,
and as they are installed."""

import lzma
import re
from typing import Any

import pytest
from helpers import DATA, ROOT

from flopscope import _core

SCHEMAS = DATA / "library_schemas.txt.xz"

# One schema marks the input in place of the output; one does not mark z, which is read only in that version.
MISMARKED = {"_moe_C::moe_sum", "_C::selective_scan_fwd"}


def test_every_row_has_an_argument_list_that_calls_can_fit() -> None:
    rules = _core._library_rules()
    assert len(rules) > 150
    for name, arguments, sound in rules:
        assert sound, (name, arguments)
        words = re.split(r" [<>=?] ", arguments)[0].removeprefix("^").split()
        given = [word for word in words if word not in ("|", "...")]
        assert given and all(word[0].isalpha() or word[0] == "_" for word in given), (name, arguments)
        names = [re.split(r"\W", word)[0] for word in given]
        assert len({*names}) == len(names), (name, arguments)


def declared() -> list[tuple[str, list[str]]]:
    lines = [line for line in lzma.decompress(SCHEMAS.read_bytes()).decode().splitlines() if not line.startswith("#")]
    return [(line.split(": ")[0], line.split(": ")[1].split()) for line in lines]


def rows() -> dict[str, list[str]]:
    """Return the argument lists of an op's rows, in the order in which they are tried."""
    found: dict[str, list[str]] = {}
    for name, arguments, _ in _core._library_rules():
        found.setdefault(name, []).append(arguments)
    return found


def roles_of(row: str) -> tuple[list[tuple[str, bool]], int, bool]:
    """Return the mark of each argument of a row and whether it may be None; how many are needed; if more may follow."""
    words = re.split(r" [<>=?] ", f" {row} ".removeprefix(" ^"))[0].split()
    given = [re.fullmatch(r"\w+(.*?)(\??)", word) for word in words if word not in ("|", "...")]
    later = min((words.index(mark) for mark in ("|", "...") if mark in words), default=len(given))
    return [(match[1], match[2] == "?") for match in given if match], later, "..." in words


def takes(role: str, optional: bool, kind: str, given: bool) -> bool:
    if role == "~":
        return True
    if kind[0] == "#":
        return role == "#"
    if not given and not optional:
        return False
    return role.startswith("%") if kind[0] == "L" else role != "#" and not role.startswith("%")


def fits(row: str, kinds: list[str], all_given: bool) -> bool:
    roles, needed, more = roles_of(row)
    if len(kinds) < needed or (len(kinds) > len(roles) and not more):
        return False
    pairs = zip(roles, kinds, strict=False)
    return all(takes(*role, kind, all_given or "?" not in kind) for role, kind in pairs)


def writes(role: str) -> bool:
    return "!" in role or "&" in role or role.startswith("=")


def test_every_version_of_an_op_has_a_row_that_takes_its_arguments() -> None:
    found, missing, checked = rows(), [], 0
    for name, kinds in declared():
        for all_given in (True, False):
            checked += 1
            if not any(fits(row, kinds, all_given) for row in found[name]):
                missing.append((name, " ".join(kinds), all_given))
    assert checked > 1000
    # Queries alone attend to keys that another layer cached.
    assert {name for name, _, all_given in missing if not all_given} == {"sglang::unified_attention_with_output"}
    assert [case for case in missing if case[2]] == []


def test_rows_write_what_the_schemas_mark() -> None:
    found, wrong = rows(), []
    for name, kinds in declared():
        row = next((row for row in found[name] if fits(row, kinds, True)), None)
        if row is None or name in MISMARKED or not any("!" in kind for kind in kinds):
            continue
        for place, ((role, _), kind) in enumerate(zip(roles_of(row)[0], kinds, strict=False)):
            if writes(role) and "!" not in kind:
                wrong.append((name, place, row))
    assert wrong == []


def test_rows_of_the_ops_without_results_write_an_argument() -> None:
    """Rows that read all they are given write a result, or their family does."""
    silent = []
    families = ("matrix", "packed_product", "experts", "attention", "attend")
    text = "".join(path.read_text() for path in ROOT.glob("csrc/work/libraries/*.def"))
    if not text:
        pytest.skip("the sources are not here")
    family = dict(re.findall(r'FS_LIBRARY\("([^"]+)", (\w+),', text))
    for name, kinds in declared():
        if not any("!" in kind for kind in kinds):
            continue
        row = next((row for row in rows()[name] if fits(row, kinds, True)), "")
        if not any(writes(role) for role, _ in roles_of(row)[0]) and " > " not in row:
            silent.append((name, row))
    assert [case for case in silent if not family[case[0]].startswith(families)] == []


def kind_of(argument: Any) -> str:
    """Return the kind of an argument of torch's schemas, as in library_schemas.txt.xz."""
    text = str(argument.type)
    kind = "L" if text.startswith("List[Tensor") or "List[Optional[Tensor" in text else "T" if "Tensor" in text else "#"
    return kind + ("?" if "Optional" in text else "")


@pytest.mark.parametrize(
    ("library", "module", "least"),
    [
        ("bitsandbytes", "bitsandbytes", 9), ("torchao", "torchao", 4),
        ("symm_mem", "torch.distributed._symmetric_memory", 12),
        ("_c10d_functional", "torch.distributed._functional_collectives", 10), ("torchvision", "torchvision", 10),
        ("fbgemm", "fbgemm_gpu", 50),
    ],
)  # fmt: skip
def test_rows_fit_the_schemas_of_the_installed_library(library: str, module: str, least: int) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip(module)
    found = {name: lists for name, lists in rows().items() if name.startswith(f"{library}::")}
    schemas = [schema for schema in torch._C._jit_get_all_schemas() if schema.name in found]
    for schema in schemas:
        kinds = [kind_of(argument) for argument in schema.arguments]
        assert any(fits(row, kinds, given) for row in found[schema.name] for given in (True, False)), str(schema)
    assert len({schema.name for schema in schemas}) >= least
