"""Run all checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tierfs.app.store import open_store
from tierfs.base.options.config import Settings
from tierfs.faces.doctor.check_archive import check_archive
from tierfs.faces.doctor.check_cold import check_cold
from tierfs.faces.doctor.cluster import Cluster, check_cluster, known_store
from tierfs.faces.doctor.findings import DoctorFinding, FindingLevel, guarded
from tierfs.faces.doctor.machine import check_machine
from tierfs.faces.doctor.spark import check_spark
from tierfs.faces.doctor.store import check_store


def examine(store_path: Path | None, *, spark: bool, cluster: Cluster | None = None) -> list[DoctorFinding]:
    """Return all findings: of the machine, the store if one is named, and Spark. Raises nothing of a store's."""
    settings = Settings()
    of_store: list[DoctorFinding] = []
    known = None
    if store_path is not None:
        of_store, settings, known = _examine_store(store_path, asked=cluster is not None)
    of_spark = guarded("spark", check_spark) if spark or cluster else []
    if cluster is not None and not any(finding.level is FindingLevel.FAIL for finding in of_spark):
        chosen, store = cluster, known
        of_spark += guarded("spark cluster", lambda: check_cluster(chosen, store))
    return [*guarded("machine", lambda: check_machine(settings)), *of_store, *of_spark]


def _examine_store(path: Path, *, asked: bool) -> tuple[list[DoctorFinding], Settings, Any]:
    """Return the store's findings and, if it could be opened, its settings.

    Also what executors are compared with, if it is `asked` for.
    """
    settings = Settings()
    known = None

    def check() -> list[DoctorFinding]:
        nonlocal settings, known
        with open_store(path, looks=True) as store:
            settings = store.settings
            known = known_store(store) if asked else None
            location_id = store.cold_location_id
            cold: list[DoctorFinding] = []
            if location_id is not None:
                cold = guarded("cold tier", lambda: check_cold(store, location_id))
                cold += guarded("archive place", lambda: check_archive(store))
            return [*guarded("store", lambda: check_store(store)), *cold]

    return guarded("store", check), settings, known
