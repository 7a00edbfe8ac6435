"""All checks in one go."""

from __future__ import annotations

from pathlib import Path

from tierfs.app import open_store
from tierfs.config import Settings
from tierfs.doctor.cold import check_cold
from tierfs.doctor.findings import Finding, guarded
from tierfs.doctor.machine import check_machine
from tierfs.doctor.spark import check_spark
from tierfs.doctor.store import check_store


def examine(store_path: Path | None, *, spark: bool) -> list[Finding]:
    """What every check found: of the machine, and of the store if one is named. Raises nothing of a store's."""
    settings = Settings()
    of_store: list[Finding] = []
    if store_path is not None:
        of_store, settings = _examine_store(store_path)
    of_spark = guarded("spark", check_spark) if spark else []
    return [*guarded("machine", lambda: check_machine(settings)), *of_store, *of_spark]


def _examine_store(path: Path) -> tuple[list[Finding], Settings]:
    """What was found, and the store's settings if it could be opened."""
    settings = Settings()

    def check() -> list[Finding]:
        nonlocal settings
        with open_store(path) as store:
            settings = store.settings
            location_id = store.cold_location_id
            cold = [] if location_id is None else guarded("cold tier", lambda: check_cold(store, location_id))
            return [*guarded("store", lambda: check_store(store)), *cold]

    return guarded("store", check), settings
