"""OpenSSH's server, as Debian ships it, with keys of its own and a user's that it knows."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import uuid
from pathlib import Path

from tests.servers.leashed import Leashed

PROGRAM = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
_KEYGEN_S = 30
# It asks for this empty directory when root starts it; Debian's service makes it.
_EMPTY = Path("/run/sshd")


class SshServer(Leashed):
    """sshd with SFTP alone; `directory` keeps its keys, and the home directory of a user who knows it and may ask."""

    def __init__(self, directory: Path, sftp: str = "internal-sftp") -> None:
        """`sftp`: the server's side of SFTP, with its options."""
        self._directory = directory
        self._sftp = sftp
        self.home = directory / "home"
        super().__init__([str(PROGRAM), "-D", "-e", "-f", str(directory / "sshd_config"), "-p", "{port}"])

    def start(self) -> None:
        """Start at the port it had, or at a free one."""
        if not self._directory.exists():
            self._make()
        super().start()
        words = (self._directory / "host.pub").read_text().split()[:2]
        (self.home / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{self._port} {' '.join(words)}\n")

    def create_directory(self) -> str:
        """Make a directory and return the URL of one below it, which is not there yet."""
        directory = self._directory / "files" / uuid.uuid4().hex
        directory.mkdir(parents=True)
        return f"sftp://{getpass.getuser()}@127.0.0.1:{self._port}{directory}/tenant/ü 1"

    def _make(self) -> None:
        keys = self.home / ".ssh"
        keys.mkdir(parents=True)
        self._directory.chmod(0o700)
        for key in (self._directory / "host", keys / "id_ed25519"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
            subprocess.run(words, check=True, timeout=_KEYGEN_S)
        (self._directory / "sshd_config").write_text(
            f"""ListenAddress 127.0.0.1
HostKey {self._directory}/host
PidFile none
AuthorizedKeysFile {keys}/id_ed25519.pub
AuthenticationMethods publickey
StrictModes no
UsePAM no
MaxStartups 100
Subsystem sftp {self._sftp}
"""
        )
        if os.geteuid() == 0:
            _EMPTY.mkdir(mode=0o755, exist_ok=True)
