"""store.toml and TIERFS_*: accepted values, refused values with their messages, and origins of values."""

from __future__ import annotations

import os
import signal
import tomllib
from collections.abc import Mapping
from functools import cache
from operator import attrgetter
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.mount.waiting import eventually
from tierfs.base.options import contradictions, settings
from tierfs.base.options.config import Settings
from tierfs.base.options.kinds import Unit
from tierfs.base.options.settings import LoadedSettings, Origin
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import InvalidRequest, NotFound
from tierfs.base.words.types import ReadPriority


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "store.toml"
    path.write_text(settings.default_text())
    return path


def test_the_template_is_the_defaults(file: Path) -> None:
    assert settings.load(file, {}) == Settings()


def test_every_line_of_the_template_may_be_uncommented(file: Path) -> None:
    lines = [line.removeprefix("# ") for line in file.read_text().splitlines() if line.startswith(("[", "# "))]
    text = "\n".join(line for line in lines if line.startswith("[") or (" = " in line and "not set" not in line))
    sections = {"read", "write", "cold", "ack", "offload", "background", "mount", "log", "metrics", "admin", "standby"}
    assert set(tomllib.loads(text)) == sections
    file.write_text(text)
    assert settings.load(file, {}) == Settings()


@pytest.mark.parametrize(
    ("text", "environment", "name", "value"),
    [
        ('[read]\nbudget_bytes = "1.5GiB"', {}, "read.budget_bytes", 3 << 29),
        ('[read]\ndeadline_s = "2min"', {}, "read.deadline_s", 120.0),
        ("[read]\nstreams = 3", {}, "read.streams", 3),
        ('[read]\npriority = "local-only"', {}, "read.priority", ReadPriority.LOCAL_ONLY),
        ('[read]\npriority = "bookkeeper-first"', {}, "read.priority", ReadPriority.LOCAL_FIRST),
        ('[read]\npriority = "BOOKKEEPER_FIRST"', {}, "read.priority", ReadPriority.LOCAL_FIRST),
        ("", {"TIERFS_READ__PRIORITY": "tiered-storage-only"}, "read.priority", ReadPriority.OFFLOADED_ONLY),
        ('[read]\ncache_bytes = "10GiB"', {"TIERFS_READ__CACHE_BYTES": "0"}, "read.cache_bytes", 0),
        ('[read]\ncache_directory = "/mnt/ssd"', {}, "read.cache_directory", "/mnt/ssd"),
        ("[offload]\ngrace_s = 5", {"TIERFS_OFFLOAD__GRACE_S": "1h", "TIERFS_STORE": "/x"}, "offload.grace_s", 3600),
    ],
)
def test_values_come_from_the_file_or_the_environment(
    file: Path, text: str, environment: Mapping[str, str], name: str, value: object
) -> None:
    file.write_text(text)
    loaded = settings.load_with_origins(file, environment)
    assert attrgetter(name)(loaded.settings) == value
    assert loaded.origins[name] is (Origin.ENVIRONMENT if environment else Origin.FILE)
    assert loaded.origins["write.open_chunks"] is Origin.DEFAULT


def test_the_cache_lies_where_it_is_told() -> None:
    paths = StorePaths(Path("/srv/store"))
    wanted = {"": "/srv/store/cache", "x": "/srv/store/x", "/mnt/ssd/x": "/mnt/ssd/x"}
    assert {text: str(paths.cache(text)) for text in wanted} == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[read]\nbudgte_bytes = 1", ["'read.budgte_bytes'", "budget_bytes"]),
        ("[red]\nx = 1", ["'red'", "read, write"]),
        ("streams = 1", ["streams", "outside of a section", "[read]"]),
        ("[read]\nstreams = 0", ["store.toml:2: read.streams = 0", "expected a whole number from 1 to 1024"]),
        ("[offload]\nledger_block_bytes = '3GiB'", ["'3GiB'", "expected a size from 5MiB to 2147483647"]),
        ("[offload]\nledger_block_bytes = '4MiB'", ["'4MiB'", "expected a size from 5MiB to 2147483647"]),
        ("[offload]\ngrace_s = 1e18", ["expected a time of whole seconds from 0 to 36500d", "or off"]),
        ("[read]\ndeadline_s = 0.01", ["expected a time from 100ms to 1d", "like 4h or 1h30min"]),
        ("[background]\nhigh_watermark_percent = 101", ["expected a whole number from 1 to 100"]),
        ("[offload]\nrelocate_dead_percent = 0", ["relocate_dead_percent = 0", "from 1 to 100"]),
        ("[read]\nstreams = 'many'", ["read.streams = 'many'", "whole number"]),
        ("[read]\nbudget_bytes = '64 parsecs'", ["64 parsecs", "64MiB"]),
        ("[read]\nbudget_bytes = true", ["read.budget_bytes = True", "expected a size of at least 1MiB"]),
        ("[read]\ndeadline_s = '4 months'", ["4 months", "4h"]),
        ("[read]\ndeadline_s = nan", ["read.deadline_s"]),
        ("[read]\npriority = 'fast'", ["fast", "local-first", "or off"]),
        ("[read]\ncache_bytes = -1", ["read.cache_bytes = -1", "a size of at least 0", "or off"]),
        ("[read]\ncache_bytes = '10 gigs'", ["10 gigs", "64MiB"]),
        ("[read]\ncache_directory = 7", ["read.cache_directory = 7", "absolute path"]),
        ("[read]\ncache_directory = '~/cache'", ["read.cache_directory = '~/cache'", "absolute path"]),
        ('[read]\ncache_directory = "a\\u0000"', ["read.cache_directory", "absolute path"]),
        ("[cold]\naddressing = 'both'", ["both", "virtual"]),
        ("[cold]\npresigned_reads = 'maybe'", ["yes or no, or true or false"]),
        ("[log]\n\n# loud\nlevel = 'loud'", ["store.toml:4: log.level", "debug, info, warning"]),
        ("[read]\nstreams = 3.5", ["read.streams = 3.5", "whole number"]),
        ("[offload]\ngrace_s = '1.5s'", ["offload.grace_s = '1.5s'", "whole seconds"]),
        ("read = {streams = 0}", ["store.toml: read.streams = 0"]),
        ("[read", ["not valid TOML"]),
    ],
)
def test_mistakes_name_the_file_the_key_and_what_is_allowed(file: Path, text: str, words: list[str]) -> None:
    file.write_text(text)
    with pytest.raises(InvalidRequest) as caught:
        settings.load(file, {})
    said = f"{caught.value} {caught.value.remedy}"
    for word in [str(file), *words]:
        assert word in said


def test_a_mistake_in_the_environment_names_the_variable(file: Path) -> None:
    for name in ("TIERFS_READ__STREAMZ", "TIERFS_RED__X"):
        with pytest.raises(InvalidRequest, match=f"environment variable {name}"):
            settings.load(file, {name: "1"})
    with pytest.raises(InvalidRequest, match=r"TIERFS_READ__STREAMS: read\.streams = 'x'"):
        settings.load(file, {"TIERFS_READ__STREAMS": "x"})


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        settings.load(tmp_path / "none", {})


Range = tuple[float, float]


@cache
def ranges() -> Mapping[str, Range]:
    """The least and the most of every setting with a range."""
    found: dict[str, Range] = {}
    for name, _ in settings.values(LoadedSettings(Settings(), {})):
        section, key = name.split(".")
        kind = settings.kind_of(settings.annotations_of(type(getattr(Settings(), section)))[key])
        if kind is not None and kind.unit is not Unit.DIRECTORY:
            found[name] = kind.least, kind.most
    return found


def as_file(values: Mapping[str, float]) -> str:
    sections: dict[str, list[str]] = {}
    for name, value in values.items():
        section, key = name.split(".")
        sections.setdefault(section, [f"[{section}]"]).append(f"{key} = {int(value) if value == int(value) else value}")
    return "\n".join("\n".join(lines) for lines in sections.values())


def with_partners(name: str, value: float) -> dict[str, float]:
    """A value, and the same of those that it may contradict, within their ranges."""
    values = {name: value}
    for rule in contradictions.SETTINGS:
        for partner in set(rule.keys) - {name} if rule.refused and name in rule.keys else ():
            least, most = ranges()[partner]
            values[partner] = min(max(value, least), most)
    return values


def test_every_setting_takes_both_ends_of_its_range_and_nothing_beyond(file: Path) -> None:
    for name, (least, most) in ranges().items():
        for value in (least, most):
            file.write_text(as_file(with_partners(name, value)))
            section, key = name.split(".")
            assert getattr(getattr(settings.load(file, {}), section), key) == value
        for value in (least - 1, most + 1):
            file.write_text(as_file({name: value}))
            with pytest.raises(InvalidRequest, match=name):
                settings.load(file, {})


OF_THE_MACHINE = {"read.deadline_s", "write.free_space_floor_bytes"}
"""Whether the ends of these do depends on the speed of the machine and on the size of its disk."""


@pytest.mark.parametrize("end", [0, 1])
def test_a_store_works_at_the_ends_of_all_ranges(tmp_path: Path, end: int) -> None:
    (tmp_path / "cold").mkdir()
    tierfs("-q", "init", "--cold-dir", tmp_path / "cold", store=tmp_path / "store")
    values = {name: ends[end] for name, ends in ranges().items() if name not in OF_THE_MACHINE}
    (tmp_path / "store" / "store.toml").write_text(as_file(values))
    (tmp_path / "entry").write_bytes(b"entry")
    data, ledger = os.urandom(3_000_000), f"m/{1:020}"
    for words in (("append", "s"), ("offload", ""), ("append", "s"), ("offload", ""), ("consolidate", "")):
        tierfs(*words, store=tmp_path / "store", stdin=data)
    tierfs("evict", "", "--force", store=tmp_path / "store")
    assert tierfs("check", "s", "--json", store=tmp_path / "store").code == 0
    tierfs("-q", "ledger", "create", "m", "--id", 1, store=tmp_path / "store")
    tierfs("-q", "ledger", "append", ledger, tmp_path / "entry", store=tmp_path / "store")
    tierfs("-q", "seal", ledger, store=tmp_path / "store")
    tierfs("-q", "offload", "m", store=tmp_path / "store")
    assert "entry" in tierfs("ledger", "read", ledger, store=tmp_path / "store").out
    tierfs("-q", "rm", "s", "--yes", store=tmp_path / "store")
    tierfs("-q", "gc", "--delete", store=tmp_path / "store")
    tierfs("-q", "daemon", store=tmp_path / "store")
    pid = int(tierfs("status", "--json", store=tmp_path / "store").json["holder"]["pid"])
    os.kill(pid, signal.SIGTERM)
    assert eventually(lambda: not Path(f"/proc/{pid}").exists())
