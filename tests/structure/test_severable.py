"""Families of features can be taken away: all other modules still import.

What needs one of them loads it when it is asked for.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

FAMILIES = {
    "Spark": ["tierfs.pipeline"],
    "the admin API": ["tierfs.faces.admin"],
    "fsspec": ["tierfs.faces.fsspec"],
    "places beside S3 and directories": ["tierfs.engine.chunkstore.places"],
    "adoption, and what links ledgers by it": [
        "tierfs.tiering.adoption",
        "tierfs.app.adopt",
        "tierfs.app.ledger_verify",
        "tierfs.app.recovery.from_objects",
        "tierfs.app.recovery.ledgers",
        "tierfs.pipeline.spark.jobs.rebuild",
    ],
}

PROGRAM = """
import importlib, pkgutil, sys

hidden = sys.argv[1:]


def is_hidden(name):
    return any(name == module or name.startswith(f"{module}.") for module in hidden)


class Hiding:
    def find_spec(self, name, path=None, target=None):
        if is_hidden(name):
            raise ModuleNotFoundError(f"{name} is hidden", name=name)


sys.meta_path.insert(0, Hiding())
import tierfs

count = 0
for module in pkgutil.walk_packages(tierfs.__path__, "tierfs.", onerror=lambda name: None):
    if not is_hidden(module.name) and not module.name.endswith(("__main__", ".submit")):
        importlib.import_module(module.name)
        count += 1
print(count)
"""


@pytest.mark.parametrize("family", FAMILIES)
def test_all_other_modules_import_without(family: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *FAMILIES[family]], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr.splitlines()[-1]
    assert int(done.stdout) > 300


def test_what_is_not_severable_is_seen() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "tierfs.engine.journal"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "tierfs.engine.journal" in done.stderr
