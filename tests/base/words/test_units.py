"""One grammar of values: what is printed is read back as the same value, in settings, policies and options alike."""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.commands import tierfs
from tierfs.base.options import policy, settings, store_toml
from tierfs.base.options.config import Settings
from tierfs.base.options.kinds import Unit
from tierfs.base.options.policy import KEYS, Policy
from tierfs.base.options.settings import LoadedSettings
from tierfs.base.words import units
from tierfs.base.words.errors import InvalidRequest
from tierfs.faces.cli import output
from tierfs.faces.cli.parameter_types import Duration, Size

SIZES = {"1GiB": 1 << 30, "64 MB": 64_000_000, "1024": 1024, "1.5 KiB": 1536, "64m": 64 << 20, "17 B": 17}
DURATIONS = {"5min": 300, "1h30m": 5400, "1h 30min": 5400, "90s": 90, "2d": 172_800, "90": 90, "1.5h": 5400}
FLAGS = {"yes": True, "true": True, "On": True, "1": True, "no": False, "FALSE": False, "off": False, "0": False}
SETTINGS = {name: value for name, value in settings.values(LoadedSettings(Settings(), {}))}


@given(st.integers(0, units.MAX_BYTES) | st.integers(0, 1 << 13).map(lambda number: number << 30))
def test_a_size_is_read_back_as_it_is_printed(size: int) -> None:
    assert units.parse_size(units.format_size(size)) == size


@given(st.floats(0, units.MAX_S) | st.integers(0, units.MAX_S) | st.integers(0, 10**9).map(lambda ms: ms / 1000))
def test_a_duration_is_read_back_as_it_is_printed(seconds: float) -> None:
    assert units.parse_duration(units.format_duration(seconds)) == seconds


@given(st.booleans())
def test_a_switch_is_read_back_as_it_is_printed(flag: bool) -> None:
    assert units.parse_flag(units.format_flag(flag)) == units.parse_flag(json.dumps(flag)) == flag


@given(st.integers(0, units.MAX_BYTES), st.integers(0, units.MAX_S))
def test_what_is_rounded_for_people_is_a_size_and_a_time_too(size: int, seconds: int) -> None:
    assert units.parse_size(output.size(min(size, 7 << 60))) == pytest.approx(min(size, 7 << 60), rel=0.06)
    assert units.parse_duration(output.duration(seconds)) <= seconds


@given(st.text())
def test_any_text_is_a_value_or_refused(text: str) -> None:
    for parse in (units.parse_size, units.parse_duration, units.parse_flag):
        with contextlib.suppress(ValueError):
            assert parse(text) >= 0  # type: ignore[operator]


def annotation_of(name: str) -> Any:
    section, key = name.split(".")
    return settings.annotations_of(type(getattr(Settings(), section)))[key]


def loaded(name: str, written: str, file: Path) -> object:
    """The value of a setting after `config set`, and with the same text in the environment."""
    file.write_text(store_toml.with_value(settings.default_text(), name, written))
    values = dict(settings.values(settings.load_with_origins(file, {})))
    section, key = name.split(".")
    variable = f"{settings.ENVIRONMENT_PREFIX}{section}__{key}".upper()
    file.write_text("")
    assert dict(settings.values(settings.load_with_origins(file, {variable: written})))[name] == values[name]
    return values[name]


def forms_of(name: str) -> dict[str, object]:
    """Texts that a setting takes by its kind, and their values."""
    kind, default = settings.kind_of(annotation_of(name)), SETTINGS[name]
    if isinstance(default, bool):
        return dict(FLAGS)
    forms: dict[str, object] = {}
    if kind is None or kind.unit is Unit.DIRECTORY:
        return {"off": None} if default is None else {}
    if kind.unit is not Unit.NUMBER:
        forms = {**(SIZES if kind.unit is Unit.SIZE else DURATIONS)}
    if kind.may_be_off:
        forms |= {"off": 0, "OFF": 0}
    return {text: value for text, value in forms.items() if kind.least <= value <= kind.most}  # type: ignore[operator]


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_takes_every_form_of_its_kind(name: str, tmp_path: Path) -> None:
    file = tmp_path / "store.toml"
    for written, value in forms_of(name).items():
        with contextlib.suppress(InvalidRequest) if name in CONTRADICTED else contextlib.nullcontext():
            assert loaded(name, written, file) == value


CONTRADICTED = {name for rule in settings.contradictions.SETTINGS if rule.refused for name in rule.keys}
"""Another setting may refuse some values of these."""


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_printed_as_it_is_read(name: str, tmp_path: Path) -> None:
    file = tmp_path / "store.toml"
    printed = settings.default_of(name)
    assert tomllib.loads(f"value = {printed}")
    assert loaded(name, store_toml.unquoted(printed), file) == SETTINGS[name]
    for value in {text: value for text, value in forms_of(name).items() if name not in CONTRADICTED}.values():
        again = store_toml.unquoted(settings.as_toml(annotation_of(name), value))
        assert loaded(name, again, file) == value


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_says_which_values_it_takes(name: str, tmp_path: Path) -> None:
    file = tmp_path / "store.toml"
    section, key = name.split(".")
    if isinstance(SETTINGS[name], str) and not settings.kind_of(annotation_of(name)) and not choices_of(name):
        return  # any text
    file.write_text(f"# mine\n[{section}]\n{key} = '~much'\n")
    with pytest.raises(InvalidRequest) as refused:
        settings.load(file, {})
    words = settings.allowed(annotation_of(name))
    assert str(refused.value) == f"{file}:3: {name} = '~much': expected {words}"
    assert "\n" not in str(refused.value)


def choices_of(name: str) -> tuple[object, ...]:
    return getattr(annotation_of(name).__origin__, "__args__", ())


def policy_forms(key: str) -> dict[str, object]:
    if key == "read_priority":
        return {"local-first": "local-first", "bookkeeper-first": "local-first"}
    if key == "ack":
        return {"local": "local", "cold": "cold"}
    if key == "compression":
        return {"off": "off", "OFF": "off", "auto": "auto", "Zstd": "zstd"}
    if key == "compression_level":
        return {"1": 1, " 19 ": 19}
    if isinstance(policy.value_of(Policy(), key), bool):
        return dict(FLAGS)
    if key == "archive_class":
        return {"GLACIER_IR": "GLACIER_IR", " DEEP_ARCHIVE ": "DEEP_ARCHIVE", "off": None, "OFF": None}
    if key == "transform":
        return {"unbatch": "unbatch", " my.own-1 ": "my.own-1", "off": None, "OFF": None}
    off: dict[str, object] = {"off": 0 if key == "trash_age" else None, "OFF": 0 if key == "trash_age" else None}
    off = {} if key in (*policy.BOUNDED_SIZES, "chunk_age") else off
    if key.endswith("_entries"):
        return {**off, "5000": 5000}
    return {**off, **(SIZES if key.endswith("_bytes") else DURATIONS)}


@pytest.mark.parametrize("key", KEYS)
def test_every_policy_takes_every_form_of_its_kind_and_is_printed_as_it_is_read(key: str) -> None:
    for written, value in policy_forms(key).items():
        stored = policy.parse(key, written)
        assert policy.from_stored(key, stored) == value
        assert policy.parse(key, policy.format(key, policy.from_stored(key, stored))) == stored


def test_options_take_the_same() -> None:
    for text, size in SIZES.items():
        assert Size().convert(text, None, None) == size
    for text, seconds in DURATIONS.items():
        assert Duration().convert(text, None, None) == seconds
    with pytest.raises(click.BadParameter, match="between 100ms"):
        Duration(0.1).convert("99ms", None, None)


def test_what_config_and_policy_show_is_pasted_back(tmp_path: Path) -> None:
    store = tmp_path / "store"
    tierfs("-q", "init", store=store)
    tierfs("-q", "config", "read.deadline_s=1h30m", "read.cache_bytes=off", "cold.retry_max_s=2500ms", store=store)
    before = tierfs("config", "--json", store=store).json
    assert before["read.deadline_s"]["value"] == 5400
    shown = [line.rpartition("  (")[0] for line in tierfs("config", store=store).out.splitlines()]
    pairs = [line for line in shown if line.partition(" = ")[0] in SETTINGS]
    done = tierfs("config", *pairs, "--json", store=store)
    told = done.json["set"] | dict.fromkeys(done.json["unset"], "")
    assert told == {name: before[name]["value"] for name in SETTINGS}
    after = tierfs("config", "--json", store=store).json
    assert {name: one["value"] for name, one in after.items()} == {name: one["value"] for name, one in before.items()}
    policies = tierfs("config", "/", "--json", store=store).json
    rows = [line.split()[:2] for line in tierfs("config", "/", store=store).out.splitlines()]
    tierfs("config", "/", *(f"{key}={value}" for key, value in rows), store=store, check=False)
    kept = tierfs("config", "/", "--json", store=store).json
    assert {key: one["value"] for key, one in kept["policy"].items()} == {
        key: one["value"] for key, one in policies["policy"].items()
    }


PARSED: dict[Any, Any] = {
    units.parse_duration: {"4h": 14400, "1.5 s": 1.5, "250ms": 0.25, 3: 3, "1w": 604800, "4h30m": 16200},
    units.parse_size: {"0": 0, 7: 7, "64MiB": 1 << 26, "1 KB": 1000, "4 KiB": 4096, "17 B": 17, "2k": 2048},
}
MANY = "9" * 400
NO_DURATIONS = [
    "",
    "h",
    "-1s",
    "1y",
    "1 month",
    "4h30",
    "30m4h",
    "1h1h",
    "\u0664h",
    ".5s",
    True,
    None,
    MANY,
    f"{MANY}d",
]
NO_SIZES = ["", "-1", "1e3", "1.5", "1.5B", "1KiBit", "1\u212aiB", "x", True, -1, "9EiB", None, "\u0663", f"{MANY}GiB"]
REFUSED: dict[Any, Any] = {
    units.parse_duration: [*NO_DURATIONS, f"{MANY}d", "9" * 5000],
    units.parse_size: [*NO_SIZES, "\u0663KiB", "9" * 5000],
}


@pytest.mark.parametrize(("parse", "values", "refused"), [(parse, PARSED[parse], REFUSED[parse]) for parse in PARSED])
def test_what_is_a_value_and_what_is_none(
    parse: Callable[[object], float], values: dict[object, float], refused: list[object]
) -> None:
    assert {text: parse(text) for text in values} == values
    for text in refused:
        with pytest.raises(ValueError, match=r"is not a (size|time)|out of range|is too long"):
            parse(text)


@pytest.mark.parametrize(("most", "accepted"), [(0, [0]), (1, [0, 1]), (2**63 - 1, [0, 1, 2**63 - 1])])
def test_whole_numbers_are_ascii_and_end_at_their_limit(most: int, accepted: list[int]) -> None:
    numbers = (0, 1, 2**63 - 1, 2**63, 10**20)
    assert [number for number in numbers if units.decimal(str(number), most) is not None] == accepted
    assert units.decimal("0" * 19 + "1", 1) == 1
    assert {units.decimal(text) for text in ("\u0663", "9" * 5000, "+1", "1_0", "-1", "")} == {None}
