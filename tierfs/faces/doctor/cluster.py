"""The door to the checks of a Spark cluster: they stand in the wing above, and load PySpark."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass
from tierfs.faces.doctor.findings import DoctorFinding

_CHECKS = "tierfs.pipeline.doctor"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster to check, as the user named it."""

    master: str
    mounts: tuple[str, ...] = ()


def known_store(store: Store) -> Any:
    """Return what executors are compared with, of an open store: a KnownStore of the checks."""
    return import_module(_CHECKS).known_store(store)


def check_cluster(cluster: Cluster, known: Any) -> Iterator[DoctorFinding]:
    """Start a session there, ask every executor, and judge the answers.

    `known`: what `known_store` returned, or None without a store.
    """
    yield from import_module(_CHECKS).check_cluster(cluster, known)
