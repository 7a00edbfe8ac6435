"""Units of systemd, by systemd's own programs: they are valid, and no service has more rights than it needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mount.namespaces import in_namespace

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "mount_helpers/systemd").glob("*.service"))
TIMERS = sorted((ROOT / "mount_helpers/systemd").glob("*.timer"))
MOUNT = ROOT / "mount_helpers/systemd/tierfs-mount@.service"
MOST_EXPOSED = 39
"""In tenths: below 4."""
OWN_NAMESPACE = re.compile(
    r"(?:Private(?!Users)\w+|Protect(?!Clock)\w+|ProcSubset|Bind\w*Paths|InaccessiblePaths|NoExecPaths|ExecPaths|Mount\w+"
    r"|Read(?:Only|Write)Paths|TemporaryFileSystem|Root\w+|DynamicUser|LogNamespace|ExtensionImages|LogsDirectory)="
)
"""Settings for which systemd makes a mount namespace: the machine would not see a mount in it."""

pytestmark = pytest.mark.timeout(120, method="thread")

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a user with one capability needs root")


def settings_of(unit: Path) -> list[str]:
    return [line for line in unit.read_text().splitlines() if "=" in line and not line.startswith("#")]


def sandbox_of(unit: Path) -> list[str]:
    """The settings after the limits, which are the last of the service."""
    lines = settings_of(unit)
    return [line for line in lines[lines.index("UMask=0077") :] if not line.startswith("WantedBy=")]


@needs_systemd
def test_systemd_takes_every_unit(tmp_path: Path) -> None:
    program = tmp_path / "tierfs"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for unit in (*UNITS, *TIMERS):  # elsewhere than in /usr/local/bin, where an installation has a link
        text = re.sub(r"^(Exec\w+=)tierfs ", rf"\1{program} ", unit.read_text(), flags=re.MULTILINE)
        (tmp_path / unit.name).write_text(text)
    units = [tmp_path / unit.name for unit in (*UNITS, *TIMERS)]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])
def test_a_service_is_hardly_exposed(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={MOST_EXPOSED}", "--no-pager", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout.splitlines()[-1:]


def test_a_mount_has_no_mount_namespace_of_its_own() -> None:
    assert [line for line in settings_of(MOUNT) if OWN_NAMESPACE.match(line)] == []
    others = [unit for unit in UNITS if unit != MOUNT]
    assert all(any(OWN_NAMESPACE.match(line) for line in settings_of(unit)) for unit in others)


def test_all_other_services_have_the_same_sandbox() -> None:
    sandboxes = {unit.name: sandbox_of(unit) for unit in UNITS if unit != MOUNT}
    first = next(iter(sandboxes.values()))
    assert len(first) > 20
    assert {name for name, sandbox in sandboxes.items() if sandbox != first} == set()


def test_what_serves_notifies_and_what_has_a_loop_is_watched() -> None:
    for unit in UNITS:
        lines = settings_of(unit)
        serves = any(line.startswith("Restart=") for line in lines)
        assert ("Type=notify" if serves else "Type=oneshot") in lines, unit.name
        reloads = any("ExecReload=kill -HUP" in line for line in lines)
        assert any(line.startswith("WatchdogSec=") for line in lines) is reloads, unit.name


@needs_systemd
@needs_root
def test_the_user_and_its_directories_are_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/group").write_text("root:x:0:\n")
    (tmp_path / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    for program, *words in (("sysusers",), ("tmpfiles", "--create")):
        folder = tmp_path / f"usr/lib/{program}.d"
        folder.mkdir(parents=True)
        shutil.copy(MOUNT.with_name(f"tierfs.{program}"), folder / "tierfs.conf")
        command = [f"systemd-{program}", f"--root={tmp_path}", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    users = (tmp_path / "etc/passwd").read_text()
    user = re.search(r"^tierfs:.*:(\d+):\d+:tierfs:/var/lib/tierfs:", users, re.MULTILINE)
    assert user is not None
    backups = (tmp_path / "var/backups/tierfs").stat()
    assert (backups.st_uid, backups.st_mode & 0o777) == (int(user[1]), 0o700)


def test_install_system_links_what_mount_and_systemd_look_for(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    names = ["tierfs", *(f"{verb}{kind}.tierfs" for verb in ("mount", "umount") for kind in ("", ".fuse"))]
    for name in names:
        (programs / name).symlink_to(sys.executable)
    page = tmp_path / "share/man/man8/mount.tierfs.8"
    page.parent.mkdir(parents=True)
    page.write_text(".TH")
    script, root = ROOT / "mount_helpers/install-system", tmp_path / "root"

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        variables = {**os.environ, "DESTDIR": str(root)}
        return subprocess.run([script, *words], capture_output=True, text=True, check=False, env=variables)

    for _ in range(2):
        assert run(programs).returncode == 0
    places = {name: root / ("usr/local/bin" if name == "tierfs" else "sbin") / name for name in names}
    assert {name: os.readlink(path) for name, path in places.items()} == {name: str(programs / name) for name in names}
    system = root / "usr/local/lib/systemd/system"
    assert {path.name for path in system.iterdir()} == {unit.name for unit in (*UNITS, *TIMERS)}
    assert (root / "usr/local/lib/sysusers.d/tierfs.conf").is_file()
    assert (root / "usr/local/share/man/man8/mount.tierfs.8").read_text() == ".TH"
    assert run("--remove", programs).returncode == 0
    assert [path for path in root.rglob("*") if not path.is_dir()] == []
    (programs / "umount.tierfs").unlink()
    refused = run(programs)
    assert (refused.returncode, "has no program umount.tierfs" in refused.stderr) == (1, True)


CAPABLE = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]
CAPABLE += ["--inh-caps=-all,+sys_admin", "--ambient-caps=-all,+sys_admin", "--bounding-set=-all,+sys_admin"]

SCRIPT = """
set -e
mount -t tmpfs -o mode=755 tmp {directory}
cd {directory}
mknod -m 666 fuse c 10 229
mount --bind fuse /dev/fuse
mkdir -m 777 mnt
mkdir -m 700 store
mkdir code
mount --bind {root} code
export PYTHONPATH={directory}/code
chown 65534:65534 store
export HOME=/
{capable} {tierfs} --store {directory}/store -q init --cold none
{capable} {tierfs} --store {directory}/store mount -f {directory}/mnt -o allow_other 2>log & pid=$!
until mountpoint -q mnt; do kill -0 $pid || {{ cat log; exit 1; }}; sleep 0.05; done
ls -A mnt; findmnt -no OPTIONS mnt
kill -KILL $pid; wait $pid || true
{capable} {tierfs} --store {directory}/store mount -f {directory}/mnt -o allow_other 2>log & pid=$!
until ls mnt >/dev/null 2>&1 && mountpoint -q mnt; do kill -0 $pid || {{ cat log; exit 1; }}; sleep 0.05; done
kill -TERM $pid; wait $pid; mountpoint mnt || echo unmounted
"""


@needs_root
@pytest.mark.mount
@pytest.mark.xdist_group("mount-namespaces")
def test_a_user_with_the_capability_mounts_for_others_without_fusermount() -> None:
    """As the unit does, where setuid programs have no effect; also over what a killed process left."""
    # The user may not be allowed to enter the directory of the project, such as one below /root.
    python = Path("/srv/code", Path(sys.executable).relative_to(ROOT)) if ROOT in Path(sys.executable).parents else ""
    tierfs = f"{python or sys.executable} -P -m tierfs"
    words = {"directory": "/srv", "root": str(ROOT), "capable": " ".join(CAPABLE), "tierfs": tierfs}
    command = in_namespace(Path(words["directory"]), "bash", "-c", SCRIPT.format(**words))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, "allow_other" in done.stdout, "unmounted" in done.stdout) == (0, True, True), done
