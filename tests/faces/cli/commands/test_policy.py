"""tierfs config PATH: set values, values in force, and refused values."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierfs.base.options import policy
from tierfs.base.options.policy import BOUNDED_SIZES, KEYS, MAX_OBJECT_BYTES, Policy
from tierfs.base.words.errors import InvalidRequest

SIZES = [key for key in KEYS if key.endswith("_bytes")]
TIMES = [key for key in KEYS if policy.allowed(key).startswith("a time")]


@given(st.sampled_from(SIZES), st.integers(1, (1 << 63) - 1))
def test_sizes_are_read_back_as_they_are_written(key: str, size: int) -> None:
    if key in BOUNDED_SIZES:
        size = size % MAX_OBJECT_BYTES + 1
    assert policy.parse(key, policy.format(key, size)) == str(size)


@given(st.sampled_from(TIMES), st.integers(1, 100 * 365 * 86_400))
def test_times_are_read_back_as_they_are_written(key: str, seconds: int) -> None:
    assert policy.parse(key, policy.format(key, seconds)) == str(seconds)


@pytest.mark.parametrize(("stored", "level"), [("0", 1), ("-5", 1), ("1", 1), ("19", 19), ("20", 19), ("9" * 30, 19)])
def test_a_level_of_a_journal_is_one_that_can_be_used(stored: str, level: int) -> None:
    assert policy.from_stored("compression_level", stored) == level


@pytest.mark.parametrize("text", ["off", "OFF", " auto ", "ZSTD"])
def test_compression_is_written_in_any_case(text: str) -> None:
    assert policy.parse("compression", text) == text.strip().lower()


@given(st.sampled_from(KEYS), st.text())
def test_any_text_is_refused_or_read_as_one_value(key: str, text: str) -> None:
    with contextlib.suppress(InvalidRequest):
        stored = policy.parse(key, text)
        value = policy.from_stored(key, stored)
        assert policy.parse(key, policy.format(key, value)) == stored


def test_every_key_has_a_value_and_words() -> None:
    for key in KEYS:
        value = policy.value_of(Policy(), key)
        assert policy.from_stored(key, policy.parse(key, policy.format(key, value))) == value
        assert policy.allowed(key)
