"""In what two runs differ."""

from __future__ import annotations

from fedprior.records.sameness import differences


def test_differences_name_the_key() -> None:
    old, new = {"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": 1}, "d": [1, 2]}
    assert differences(old, old) == []
    assert differences(old, new) == ["a.c: 2 then, None now", "d: [1] then, [1, 2] now"]
