"""What servers a test needs, from its fixtures and parameters: its marker, and the group that shares a process."""

from __future__ import annotations

import pytest

_GROUPS = {
    "kept_jvm": "spark",
    "azure_server": "azure",
    "azure": "azure",
    "gcs_server": "gcs",
    "gcs": "gcs",
    "ssh_server": "sftp",
    "sftp": "sftp",
}
"""By a fixture of a test, or the beginning of a parameter: each other process would start the server, too, and import
what its clients need."""


def mark(item: pytest.Item) -> None:
    """Mark a test that uses Ceph, so that none needs to remember, and one whose server is that of a process."""
    fixtures, chosen = getattr(item, "fixturenames", ()), _chosen(item)
    if "rgw_server" in fixtures or any(name.startswith("rgw") for name in chosen):
        item.add_marker(pytest.mark.s3)
    names = {*fixtures, *(name.partition("-")[0] for name in chosen)}
    group = next((group for name, group in _GROUPS.items() if name in names), None)
    if group is not None:
        item.add_marker(pytest.mark.xdist_group(group))


def _chosen(item: pytest.Item) -> list[str]:
    """Return the parameters of a test that are texts: the text of all takes 1.5 s of each process."""
    chosen = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    return [each for each in chosen if isinstance(each, str)]
