"""store.toml and TIERFS_*: accepted values, refused values with their messages, and origins of values."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tierfs import settings, units
from tierfs.config import Settings
from tierfs.errors import InvalidRequest, NotFound
from tierfs.settings import Origin
from tierfs.store_paths import StorePaths
from tierfs.types import ReadPriority


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "store.toml"
    path.write_text(settings.default_text())
    return path


def test_the_template_is_the_defaults(file: Path) -> None:
    assert settings.load(file, {}) == Settings()


def test_every_line_of_the_template_may_be_uncommented(file: Path) -> None:
    lines = [line.removeprefix("# ") for line in file.read_text().splitlines() if line.startswith(("# [", "# "))]
    text = "\n".join(line for line in lines if line.startswith("[") or (" = " in line and "not set" not in line))
    assert set(tomllib.loads(text)) == {"read", "write", "cold", "offload", "background", "mount"}
    file.write_text(text)
    assert settings.load(file, {}) == Settings()


def test_sizes_times_and_choices(file: Path) -> None:
    file.write_text('[read]\nbudget_bytes = "1.5GiB"\ndeadline_s = "2min"\npriority = "local-only"\nstreams = 3\n')
    read = settings.load(file, {}).read
    assert (read.budget_bytes, read.deadline_s, read.streams) == (3 << 29, 120.0, 3)
    assert read.priority is ReadPriority.LOCAL_ONLY


@pytest.mark.parametrize("name", ["bookkeeper-first", "BOOKKEEPER_FIRST", "local-first"])
def test_a_read_priority_may_have_pulsars_name(file: Path, name: str) -> None:
    file.write_text(f'[read]\npriority = "{name}"\n')
    assert settings.load(file, {}).read.priority is ReadPriority.LOCAL_FIRST
    assert settings.load(file, {"TIERFS_READ__PRIORITY": "tiered-storage-only"}).read.priority == "offloaded-only"


def test_the_cache_is_off_by_default_and_lies_where_it_is_told(file: Path) -> None:
    assert settings.load(file, {}).read.cache_bytes == 0
    file.write_text('[read]\ncache_bytes = "10GiB"\ncache_directory = "/mnt/ssd/tierfs"\n')
    read = settings.load(file, {"TIERFS_READ__CACHE_BYTES": "0"}).read
    assert (read.cache_bytes, read.cache_directory) == (0, "/mnt/ssd/tierfs")
    paths = StorePaths(Path("/srv/store"))
    assert [str(paths.cache(text)) for text in ("", "x", "/mnt/ssd/x")] == [
        "/srv/store/cache",
        "/srv/store/x",
        "/mnt/ssd/x",
    ]


def test_the_environment_overrides_the_file(file: Path) -> None:
    file.write_text("[offload]\ngrace_s = 5\ncheckpoint_entries = 7\n")
    loaded = settings.load_with_origins(file, {"TIERFS_OFFLOAD__GRACE_S": "1h", "TIERFS_STORE": "/x", "HOME": "/"})
    assert (loaded.settings.offload.grace_s, loaded.settings.offload.checkpoint_entries) == (3600, 7)
    assert loaded.origins["offload.grace_s"] is Origin.ENVIRONMENT
    assert loaded.origins["offload.checkpoint_entries"] is Origin.FILE
    assert loaded.origins["read.streams"] is Origin.DEFAULT


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[read]\nbudgte_bytes = 1", ["'read.budgte_bytes'", "budget_bytes"]),
        ("[red]\nx = 1", ["'red'", "read, write"]),
        ("streams = 1", ["streams", "outside of a section", "[read]"]),
        ("[read]\nstreams = 0", ["read.streams = 0", "greater than 0"]),
        ("[offload]\nledger_block_bytes = '4MiB'", ["offload.ledger_block_bytes = '4MiB'", "5242880"]),
        ("[background]\nhigh_watermark_percent = 101", ["high_watermark_percent = 101", "less than or equal to 100"]),
        ("[offload]\nrelocate_dead_percent = 0", ["relocate_dead_percent = 0", "greater than or equal to 1"]),
        ("[read]\nstreams = 'many'", ["read.streams = 'many'", "integer"]),
        ("[read]\nbudget_bytes = '64 parsecs'", ["64 parsecs", "64MiB"]),
        ("[read]\nbudget_bytes = true", ["read.budget_bytes", "not a size"]),
        ("[read]\ndeadline_s = '4 months'", ["4 months", "4h"]),
        ("[read]\ndeadline_s = nan", ["read.deadline_s"]),
        ("[read]\npriority = 'fast'", ["fast", "'local-first'"]),
        ("[read]\ncache_bytes = -1", ["read.cache_bytes = -1", "out of range"]),
        ("[read]\ncache_bytes = '10 gigs'", ["10 gigs", "64MiB"]),
        ("[read]\ncache_directory = 7", ["read.cache_directory = 7", "string"]),
        ("[read]\ncache_directory = '~/cache'", ["read.cache_directory = '~/cache'", "absolute path"]),
        ('[read]\ncache_directory = "a\\u0000"', ["read.cache_directory", "absolute path"]),
        ("[cold]\naddressing = 'both'", ["both", "'virtual'"]),
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


def test_defaults_do_not_need_pydantic(file: Path) -> None:
    code = f"""if 1:
        import sys, pathlib
        from tierfs import settings
        settings.load(pathlib.Path({str(file)!r}), {{}})
        assert "pydantic" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("4h", 14400), ("10min", 600), ("1.5 s", 1.5), ("250ms", 0.25), ("2", 2), (3, 3), ("1w", 604800)],
)
def test_durations(text: str | int, seconds: float) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-1s", "1y", "1 month", "4h30m", True, None])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        units.parse_duration(text)


@pytest.mark.parametrize(("text", "size"), [("0", 0), (7, 7), ("64MiB", 1 << 26), ("1 KB", 1000), ("4 KiB", 4096)])
def test_sizes(text: str | int, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "1e3", "x", True, -1, "9EiB", None])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a size|out of range"):
        units.parse_size(text)
