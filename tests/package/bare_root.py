"""A bare Debian root: what a new machine has, with this machine's package sources, certificates and /dev/fuse."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.mount.namespaces import FORGET_OTHERS

RELEASE = "bookworm"
BASE = "TIERFS_TEST_BARE_ROOT"
"""A root that debootstrap made before, to be copied; a new one takes a minute."""

PASSED_ON = re.compile(r"SSL_CERT_(FILE|DIR)|CURL_CA_BUNDLE|\w+_proxy|\w+_PROXY")

ENTER = f"""
set -e
root=$1
shift
mount --make-rprivate /
keep=$root
{FORGET_OTHERS}
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
exec env -i "$@" HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
  DEBIAN_FRONTEND=noninteractive chroot "$root" bash
"""
END = "--end-of-command--"


class BareRoot:
    """A shell in the root, with mounts and processes of its own."""

    def __init__(self, path: Path, shell: subprocess.Popen[str]) -> None:
        self.path = path
        self._shell = shell

    def run(self, command: str, *, code: int = 0) -> str:
        """Run a command and return what it printed; it must end with this code."""
        self._stream(self._shell.stdin).write(f"{{ {command}\n}} < /dev/null 2>&1; code=$?; echo; echo {END} $code\n")
        self._stream(self._shell.stdin).flush()
        printed: list[str] = []
        for line in self._stream(self._shell.stdout):
            if line.startswith(END):
                text = "".join(printed)
                assert int(line.split()[1]) == code, f"{command}\n{text}"
                return text.rstrip("\n")
            printed.append(line)
        raise AssertionError(f"the shell ended in: {command}\n{''.join(printed)}")

    @staticmethod
    def _stream(stream: IO[str] | None) -> IO[str]:
        assert stream is not None
        return stream


@contextmanager
def bare_root(path: Path) -> Iterator[BareRoot]:
    """Make a root at a path, until the end of the block. Skips where it cannot be made."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("a bare Debian needs root and debootstrap")
    _make(path)
    variables = [f"{name}={value}" for name, value in os.environ.items() if PASSED_ON.fullmatch(name)]
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", ENTER, "bash", str(path)]
    shell = subprocess.Popen([*command, *variables], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield BareRoot(path, shell)
    finally:
        shell.kill()  # and with it all processes and mounts of the root
        shell.communicate()
        shutil.rmtree(path)


def _make(path: Path) -> None:
    sources = Path("/etc/apt")
    if BASE in os.environ:
        subprocess.run(["cp", "-a", "--reflink=auto", os.environ[BASE], str(path)], check=True)
        return
    subprocess.run(["debootstrap", "--variant=minbase", "--include=ca-certificates", RELEASE, str(path)], check=True)
    for name in ("sources.list", "sources.list.d", "apt.conf.d"):
        subprocess.run(["rm", "-rf", str(path / "etc/apt" / name)], check=True)
        if (sources / name).exists():
            subprocess.run(["cp", "-a", str(sources / name), str(path / "etc/apt" / name)], check=True)
    for name in ("ssl/certs", "resolv.conf", "hosts"):
        subprocess.run(["rm", "-rf", str(path / "etc" / name)], check=True)
        subprocess.run(["cp", "-rL", f"/etc/{name}", str(path / "etc" / name)], check=True)
