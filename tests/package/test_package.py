"""Install, upgrade, removal and purge of the Debian package, with a mount at work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.package.bare_root import BareRoot, bare_root

pytestmark = [pytest.mark.whole, pytest.mark.slow, pytest.mark.mount, pytest.mark.timeout(3600, method="thread")]

ROOT = Path(__file__).parents[2]
OLD, NEW = "0.0.1-1", "0.0.2-1"
SUM = "sha256sum /mnt/logs/a | cut -d' ' -f1"
APT = "apt-get install -y -qq --no-install-recommends"
NOT_OURS = re.compile(r"/var/(log|cache|lib/(apt|dpkg))/|/etc/ld.so.cache|/root/files|/(tmp|proc|sys|dev|run)/")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with the package of what is committed, in two versions."""
    clone, built = tmp_path_factory.mktemp("package") / "clone", tmp_path_factory.mktemp("built")
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    quick = {"DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}
    for version in (OLD, NEW):
        command = [clone / "mount_helpers/package/build", built, version]
        subprocess.run(command, check=True, env={**os.environ, **quick})
    return built


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory, packages: Path) -> Iterator[BareRoot]:
    """A root with the packages in /root, what they depend on installed, and a list of its files."""
    with bare_root(tmp_path_factory.mktemp("bare") / "root") as made:
        for package in packages.glob("*.deb"):
            shutil.copy(package, made.path / "root")
        depends = f"dpkg-deb -f /root/tierfs_{OLD}_*.deb Depends"
        made.run("apt-get update -qq")
        made.run(f"{APT} $({depends} | sed 's/([^)]*)//g; s/,/ /g')")
        made.run("find / -xdev | sort > /root/files")
        yield made


def test_package_is_installed_upgraded_and_purged_with_a_mount_at_work(root: BareRoot) -> None:
    root.run(f"{APT} /root/tierfs_{OLD}_*.deb")
    assert root.run("tierfs --version").startswith("tierfs, version ")
    for name in (
        "man/man1/tierfs-append.1.gz",
        "man/man8/mount.tierfs.8.gz",
        "bash-completion/completions/tierfs",
        "doc/tierfs/copyright",
        "doc/tierfs/alerts.yml",
    ):
        root.run(f"test -s /usr/share/{name}")
    root.run("tierfs doctor")
    root.run("mkdir -p /srv/cold /mnt/logs && tierfs --store /srv/store init --cold-dir /srv/cold")
    root.run("head -c 3000000 /dev/urandom > /root/files.a; tierfs --store /srv/store append a < /root/files.a")
    root.run("tierfs --store /srv/store offload --quiet && tierfs --store /srv/store evict --quiet --force")
    root.run("echo '/srv/store /mnt/logs fuse.tierfs _netdev,nofail 0 0' >> /etc/fstab && mount -a")
    expected = root.run("sha256sum < /root/files.a | cut -d' ' -f1")
    assert root.run(SUM) == expected

    said = root.run(f"{APT} /root/tierfs_{NEW}_*.deb")
    assert f"tierfs: {OLD} is kept until the next upgrade: process" in said
    assert root.run("ls /usr/lib/tierfs").split() == [OLD, NEW, "current", "package"]
    assert root.run("readlink -f /usr/bin/tierfs") == f"/usr/lib/tierfs/{NEW}/bin/tierfs"
    # Reads, and what the mount imports only now.
    assert root.run("dd if=/mnt/logs/a iflag=nocache count=0 status=none; " + SUM) == expected
    for name in ("backlog", "config", "metrics", "stats"):
        root.run(f'test -n "$(cat /mnt/logs/.tierfs/{name})"')
    root.run("tierfs --store /srv/store status")
    root.run(
        "head -c 100 /root/files.a | tierfs --store /srv/store append b && tierfs --store /srv/store offload --quiet"
    )

    said = root.run("! apt-get remove -y -qq tierfs")
    assert re.search("tierfs: in use by process [0-9]+, mounted at /mnt/logs: unmount it or stop it, then remove", said)
    assert root.run(SUM) == expected
    root.run("tierfs umount /mnt/logs && apt-get remove -y -qq tierfs")
    assert root.run("ls /usr/lib/tierfs /usr/bin/tierfs 2> /dev/null", code=2) == ""
    root.run(f"{APT} /root/tierfs_{OLD}_*.deb && apt-get purge -y -qq tierfs")
    left = root.run("find / -xdev | sort | comm -13 /root/files -").splitlines()
    stores = ("/srv/", "/mnt/logs")
    assert [path for path in left if not (NOT_OURS.match(path) or path.startswith(stores))] == []
    root.run('test -s /srv/store/metadata/data.mdb && test -n "$(find /srv/cold -type f)"')


def test_old_version_of_the_package_goes_once_nothing_runs_from_it(root: BareRoot) -> None:
    for version in (OLD, NEW):
        root.run(f"{APT} /root/tierfs_{version}_*.deb")
    assert root.run("ls /usr/lib/tierfs").split() == [NEW, "current", "package"]
    root.run(f"{APT} --reinstall /root/tierfs_{NEW}_*.deb && tierfs --version && dpkg --verify tierfs")


def test_package_is_the_same_each_time_it_is_built(packages: Path, tmp_path: Path) -> None:
    quick = {"DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}
    command = [packages.parent / "package0/clone/mount_helpers/package/build", tmp_path, NEW]
    subprocess.run(command, check=True, env={**os.environ, **quick})
    (again,) = tmp_path.glob("*.deb")
    assert again.read_bytes() == (packages / again.name).read_bytes()
