"""Modules from their protobuf: the same as from their text, of programs that JAX compiled; and damaged ones."""

import random
from typing import Any

import pytest
from helpers.hlo_texts import PAIRS, check_same, pair
from helpers.protobufs import field, message

import flopscope as fs
from flopscope import _core


@pytest.mark.parametrize("name", PAIRS)
def test_text_and_protobuf_give_the_same_module(name: str) -> None:
    check_same(*pair(name))


@pytest.mark.parametrize("name", PAIRS)
def test_work_is_that_of_the_text(name: str) -> None:
    text, proto = pair(name)
    ours, theirs, wrapped = (fs.work_of_hlo(one) for one in (proto, text, field(1, proto)))
    assert ours.to_csv() == theirs.to_csv() == wrapped.to_csv()


def _shape(kind: int = 11, *sizes: int) -> bytes:
    return message((2, kind), *((3, size) for size in sizes))


def _instruction(number: int, opcode: str = "parameter", *fields: tuple[int, Any], shape: bytes | None = None) -> bytes:
    return message((1, f"i{number}"), (2, opcode), (3, _shape() if shape is None else shape), (35, number), *fields)


def _computation(number: int, *instructions: bytes) -> bytes:
    return message((1, f"c{number}"), *((2, one) for one in instructions), (5, number))


def _module(*computations: bytes, schedule: bytes | None = None) -> bytes:
    return message((1, "jit_f"), *((3, one) for one in computations), (6, 0), (7, schedule))


def _lone(*fields: Any, **more: Any) -> bytes:
    """Return a module of one instruction."""
    return _module(_computation(0, _instruction(1, *fields, **more)))


def _nested(depth: int) -> bytes:
    shape = _shape()
    for _ in range(depth):
        shape = message((2, 13), (4, shape))
    return shape


_USER = _instruction(2, "negate", (36, 1))


@pytest.mark.parametrize(
    ("module", "what"),
    [
        (_module(), "no computation is the entry"),
        (_module(_computation(0)), "the computation has no instructions"),
        (_module(_computation(0, _USER, _instruction(1))), "1 is an operand, and no instruction before it"),
        (_module(_computation(0, _USER)), "1 is an operand"),
        (_module(_computation(0, _instruction(1), _instruction(1))), "two instructions have the number 1"),
        (_module(*[_computation(0, _instruction(1))] * 2), "two computations have the number 0"),
        (_module(_computation(0, message((1, "x"), (35, 1)))), "has no name, no opcode or no shape"),
        (_lone("call", (38, 0)), "the computation calls itself"),
        (_module(*(_computation(i, _instruction(1, "call", (38, 1 - i))) for i in (0, 1))), "calls itself"),
        (_module(*(_computation(i, _instruction(1, "call", (38, i + 1))) for i in range(99))), "deeper than 64"),
        (_lone(shape=_nested(64)), "tuples are nested deeper than 64"),
        (_lone(shape=_shape(11, *[2] * 65)), "more than 64 dimensions"),
        (_lone(shape=_shape(11, 1 << 62, 1 << 62)), "more than 2\\^62 elements"),
        (_lone(shape=_shape(11, -5)), "a negative size"),
        (_lone(shape=_shape(11, 2) + field(5, field(1, 7))), "a layout has a dimension that its shape lacks"),
        (_module(_computation(0, _instruction(1)), schedule=field(1, field(2, field(1, 9)))), "9 is in the schedule"),
        (_lone("convolution", (16, field(11, 9))), "contradictory"),
        (_module(_computation(0, _instruction(1) + b"\x0f")), "a field is of an unknown type"),
        (_lone()[:-3], "a field is longer than what holds it"),
    ],
)
def test_what_is_no_module_is_an_error_with_the_byte(module: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=rf"byte \d+.*{what}"):
        _core._read_hlo(module)


def test_instructions_are_in_the_order_of_the_schedule() -> None:
    entry = field(1, message((1, 0), (2, b"".join(field(1, number) for number in (3, 1)) + field(1, 2))))
    module = _module(_computation(0, _instruction(1), _USER, _instruction(3)), schedule=entry)
    read = _core._read_hlo(module)
    assert [one["name"] for one in read["computations"][0][1]] == ["i3", "i1", "i2"] and read["scheduled"]


def test_changed_bytes_are_an_error_or_a_module() -> None:
    source = random.Random(35)
    _, whole = pair("scan")
    for _ in range(200):
        changed = bytearray(whole)
        for _ in range(source.randint(1, 4)):
            changed[source.randrange(len(changed))] = source.randrange(256)
        try:
            fs.work_of_hlo(bytes(changed))
        except ValueError as problem:
            assert str(problem)
