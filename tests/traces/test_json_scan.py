"""The scanner of JSON texts, compared with Python's json."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopscope import _core

WORDS = {"true": True, "false": False, "null": None, "NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Wrong(Exception):
    pass


def loads(text: bytes) -> Any:
    """Return the value of the scanner's tokens; raise Wrong if they end early or a word is unknown to Python's json."""
    tokens, _, at, _ = _core._json_tokens(text)
    depth = 0
    for kind, _ in tokens:
        depth += (kind in ("object", "array")) - (kind in ("object_end", "array_end"))
    if not tokens or depth or text[at:].strip(b" \n\r\t"):
        raise Wrong(at)
    rest = iter(tokens)
    value = _value(*next(rest), rest)
    if next(rest, None) is not None:
        raise Wrong("more than one value")
    return value


def _value(kind: str, text: bytes, rest: Any) -> Any:
    if kind == "string":
        return text.decode("utf-8", "surrogatepass")
    if kind == "number":
        return json.loads(text)
    if kind == "word":
        if text.decode("latin-1") not in WORDS:
            raise Wrong(text)
        return WORDS[text.decode()]
    if kind == "array":
        items = []
        while (token := next(rest))[0] != "array_end":
            items.append(_value(*token, rest))
        return items
    assert kind == "object", kind
    members = {}
    while (token := next(rest))[0] != "object_end":
        assert token[0] == "key"
        members[token[1].decode("utf-8", "surrogatepass")] = _value(*next(rest), rest)
    return members


def agree(text: str) -> None:
    try:
        expected = json.loads(text, strict=False)
    except ValueError:
        with pytest.raises(Wrong):
            loads(text.encode("utf-8", "surrogatepass"))
        return
    assert repr(loads(text.encode("utf-8", "surrogatepass"))) == repr(expected)


CORPUS = [
    *("1", "-1", "0", "-0", "01", "1.", ".5", "+1", "1e5", "1E+5", "1e", "1e+", "--1", "1.5e-3", "0x10", "1_0", "- 1"),
    *("true", "false", "null", "True", "nul", "truefalse", "NaN", "-NaN", "Infinity", "-Infinity", "N/A", "inf"),
    *('""', '"a"', '"\\""', '"\\\\"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\q"', '"\\u12"', '"\\u12g4"'),
    *('"a', '"\\', '"\\"', '"\n"', '"\t\x01"', '"é😀"', '"\\/\\b\\f\\n\\r\\t"', "'a'", '"' + "x" * 100 + '\\n"'),
    *("[]", "[1]", "[1,2]", "[1,]", "[,1]", "[1 2]", "[", "]", "[[[]]]", "[1]]", "[1", "[{}]", "[" * 200 + "]" * 200),
    *("{}", '{"a":1}', '{"a":1,}', '{"a" 1}', '{"a":}', "{a:1}", '{"a":1,"b":[2,{"c":null}]}', '{"a":1 "b":2}', "{,}"),
    *("{1:2}", "{", "}", '{"a"', '{"a":', '{"a":1', '{"a":1,"a":2}', "[}", "{]", "", " ", "1 2", "null null", "[] []"),
    *(" [ 1 , 2 ] ", "\n{\r\n}\t", "12345678901234567890123", "1.7976931348623157e309", "[1,\n2]", "/**/1", "\ufeff1"),
]


def test_valid_and_invalid_texts_agree_with_pythons_json() -> None:
    for text in CORPUS:
        agree(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None, max_examples=300)
@given(values, st.booleans(), st.sampled_from([None, 1]), st.data())
def test_texts_of_json_and_those_with_one_changed_character_agree(
    value: Any, ascii_only: bool, indent: int | None, data: st.DataObject
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    agree(text)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from([*'{}[]",:\\0-.eEtfn a', ""]))
    agree(text[:at] + other + text[at + 1 :])


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        (b'{"a" 1}', 5, "':'"), (b"[1 2]", 3, "',' or ']'"), (b'{"a":1 "b"}', 7, "',' or '}'"),
        (b'{"a":@}', 5, "a value"), (b"{7:1}", 1, "a key, in quotes"), (b'"ab\\x"', 3, "an escape of JSON"),
    ],
)  # fmt: skip
def test_an_error_reports_its_byte_and_the_expected_text(text: bytes, at: int, expected: str) -> None:
    _, status, where, what = _core._json_tokens(text)
    assert (status, where, what) == ("bad", at, expected)


def test_nesting_is_limited_and_bytes_that_are_not_utf8_are_unchanged() -> None:
    tokens, status, where, expected = _core._json_tokens(b"[" * 5000)
    assert (len(tokens), status, where, expected) == (1024, "bad", 1024, "no more than 1024 nested values")
    tokens, *_ = _core._json_tokens(b'["a\xff\xfe"]')
    assert tokens[1] == ("string", b"a\xff\xfe")
