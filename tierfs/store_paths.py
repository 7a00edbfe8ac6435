"""The places of files in a store's directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class StorePaths:
    """The files and directories of one store."""

    root: Path

    @property
    def settings(self) -> Path:
        """Settings; written last by init, so it marks a complete store."""
        return self.root / "store.toml"

    @property
    def new_settings(self) -> Path:
        """Settings of a store that is being made."""
        return self.root / "store.toml.new"

    @property
    def metadata(self) -> Path:
        """The LMDB environment."""
        return self.root / "metadata"

    @property
    def chunks(self) -> Path:
        """Local chunk files."""
        return self.root / "chunks"

    @property
    def locks(self) -> Path:
        """Directory of lock files."""
        return self.root / "locks"

    @property
    def writers(self) -> Path:
        """File whose bytes are the writers' locks."""
        return self.locks / "writers"

    @property
    def holder(self) -> Path:
        """Lock and note of the store's holder."""
        return self.locks / "holder"

    @property
    def ballast(self) -> Path:
        """Room set aside for a full disk."""
        return self.root / "ballast"

    @property
    def cold(self) -> Path:
        """The default cold tier."""
        return self.root / "cold"

    def cache(self, directory: str) -> Path:
        """Return the disk cache; `directory` is the setting read.cache_directory."""
        return self.root / (directory or "cache")

    @property
    def log(self) -> Path:
        """Logs of daemonized mounts."""
        return self.root / "log"
