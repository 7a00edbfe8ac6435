"""Options of `-o`: those of mount(8) and of programs that read /etc/fstab, and what peers call ours."""

from __future__ import annotations

import dataclasses

import pytest

from tierfs.base.options.config import Settings
from tierfs.base.words.errors import InvalidRequest
from tierfs.mount import options_of_others
from tierfs.mount.options import known, parse_options

NOTHING = parse_options("")
SETTINGS = {
    f"{room.name}.{setting.name}"
    for room in dataclasses.fields(Settings)
    for setting in dataclasses.fields(room.default_factory)  # type: ignore[arg-type]
}
OF_THE_PLACE = {"cold.url", "cold.endpoint_url", "cold.region", "cold.profile"}
"""What `config` changes of the cold tier's record, which is not a setting."""


@pytest.mark.parametrize(
    "text",
    [
        "rw",  # mount(8) gives it to each helper
        "ro,nosuid,nodev,noexec,noatime,relatime,exec,suid,dev,sync",
        "defaults,noauto,auto,user,user=joe,users,owner,group,nofail,_netdev",
        "x-systemd.automount,x-systemd.requires=a.service,x-gvfs-show,X-mount.mkdir,comment=two words",
        " ,, ",
    ],
)
def test_options_of_mount_and_fstab_change_nothing(text: str) -> None:
    assert parse_options(text) == NOTHING


def test_own_options_between_those_of_fstab() -> None:
    parsed = parse_options("rw,ro,nofail,uid=7,x-systemd.device-timeout=9,gid=8,allow_other,_netdev,umask=077")
    assert (parsed.uid, parsed.gid, parsed.umask, parsed.allow_other) == (7, 8, 0o77, True)


@pytest.mark.parametrize(
    ("item", "remedy"),
    [
        ("cache_size=1G", "tierfs config read.cache_bytes="),
        ("cache-dir=/ssd", "tierfs config read.cache_directory="),
        ("read.streams=2", "tierfs config read.streams="),
        ("log_level=debug", "tierfs config log.level="),
        ("attribute_timeout_s=1", "tierfs config mount.attribute_timeout_s="),
        ("nonempty", "choose an empty directory"),
    ],
)
def test_an_option_of_another_program_is_refused_with_what_does_the_same(item: str, remedy: str) -> None:
    with pytest.raises(InvalidRequest, match="unknown mount option") as refused:
        parse_options(f"ro,{item}")
    assert remedy in (refused.value.remedy or "")


@pytest.mark.parametrize("item", ["fast", "uid=", "no-fail", "X", "cachesizes"])
def test_an_option_that_nothing_resembles_is_refused_without_a_guess(item: str) -> None:
    with pytest.raises(InvalidRequest, match="unknown mount option") as refused:
        parse_options(item)
    assert refused.value.remedy is None


def test_settings_in_the_place_of_options_exist() -> None:
    meant = set(options_of_others.SETTINGS.values())
    assert meant - SETTINGS - OF_THE_PLACE == set()


def test_each_setting_that_concerns_a_mount_is_found_by_its_name() -> None:
    for name in SETTINGS:
        room, _, own = name.partition(".")
        if room in ("read", "mount", "cold"):
            remedies = {options_of_others.remedy_for(f"{text}=1") for text in (name, own)}
            assert any(name in (remedy or "") for remedy in remedies), name


def test_a_remount_is_refused_in_one_line() -> None:
    with pytest.raises(InvalidRequest, match="cannot be changed while it is mounted"):
        parse_options("ro,remount,uid=3")


def test_a_sloppy_mount_drops_unknown_options_alone() -> None:
    assert known("rw,fast,uid=3,uid=,allow_other,x-a") == "rw,uid=3,allow_other,x-a"
