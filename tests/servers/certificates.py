"""Certificates for servers of tests: an authority of its own, and what it signs, good and bad."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

S3_DOMAIN = "s3.localhost"
"""Buckets are addressed below it. A wildcard needs two dots to be believed: `*.localhost` is refused by OpenSSL."""

LOOPBACK = ("DNS:localhost", "IP:127.0.0.1", "IP:::1", f"DNS:{S3_DOMAIN}", f"DNS:*.{S3_DOMAIN}")
"""Every name of a server on this machine."""

OTHER = ("DNS:other.example",)
VALID_DAYS = 30
EXPIRED_DAYS = -1
"""The end of the validity lies a day back."""

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Certificate:
    """Files of a server, in PEM."""

    certificate: Path
    key: Path

    def serving(self) -> ssl.SSLContext:
        """The server's side of TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


@dataclass(frozen=True)
class Authority:
    """Signs certificates; a client that trusts `certificate` trusts them."""

    directory: Path
    name: str = "tierfs test CA"

    @classmethod
    def create(cls, directory: Path) -> Authority:
        """Make one, with its files in a directory that is made if it is missing."""
        directory.mkdir(parents=True, exist_ok=True)
        authority = cls(directory)
        files = ("-keyout", str(authority._key), "-out", str(authority.certificate))
        _openssl("req", "-x509", *_KEY, *files, "-days", str(VALID_DAYS), "-subj", f"/CN={authority.name}")
        return authority

    @property
    def certificate(self) -> Path:
        """What clients must trust."""
        return self.directory / "ca.pem"

    def issue(self, name: str, subjects: Sequence[str] = LOOPBACK, days: int = VALID_DAYS) -> Certificate:
        """A certificate for `subjects`, valid for `days` from now; `name` is that of its files."""
        found = Certificate(self.directory / f"{name}.pem", self.directory / f"{name}.key")
        request, extensions = self.directory / f"{name}.request", self.directory / f"{name}.extensions"
        extensions.write_text(f"subjectAltName={','.join(subjects)}\n")
        _openssl("req", *_KEY, "-keyout", str(found.key), "-out", str(request), "-subj", f"/CN={name}")
        by = ("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial")
        what = ("-in", str(request), "-out", str(found.certificate), "-extfile", str(extensions))
        _openssl("x509", "-req", *by, *what, "-days", str(days))
        return found

    @property
    def _key(self) -> Path:
        return self.directory / "ca.key"


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")
