from __future__ import annotations

import pytest

from vla_simd_ros.tuning.plain_json import parse_json


def test_a_value_is_read() -> None:
    assert parse_json('{"a": [1, {"a": null}], "b": "x"}') == {"a": [1, {"a": None}], "b": "x"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 1}}', "'c' is there twice, expected it once"),
        ("[" * 100_000, "recursion"),
        ("{", "line 1 column 2"),
        ("9" * 5000, "digits"),
    ],
)
def test_anything_else_is_a_value_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(text)
