"""The manifests for Kubernetes: valid by the published schemas, and they fit each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubernetes_validate.utils import ValidationError

from tests.commands import tierfs

FOLDER = Path(__file__).parents[2] / "mount_helpers/kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
OLDEST = "1.33"


def manifests(*names: str) -> Iterator[dict[str, Any]]:
    """The objects of the files, of all by default."""
    for path in FILES:
        if not names or path.stem in names:
            yield from yaml.safe_load_all(path.read_text())


def manifest(kind: str, name: str) -> dict[str, Any]:
    """The only object of a kind in a file."""
    (found,) = (each for each in manifests(name) if each["kind"] == kind)
    return found


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_manifests_follow_the_schemas_of_kubernetes(path: Path, version: str) -> None:
    for each in yaml.safe_load_all(path.read_text()):
        kubernetes_validate.validate(each, version, strict=True)


def test_a_misspelt_field_of_a_manifest_is_found() -> None:
    pod = manifest("Pod", "reader")
    pod["spec"]["containers"][0]["volumeMounts"][0]["mountPropagations"] = "HostToContainer"
    with pytest.raises(ValidationError):
        kubernetes_validate.validate(pod, OLDEST, strict=True)


def test_mounts_of_the_daemon_set_reach_the_pods_that_claim_the_volume() -> None:
    pod = manifest("DaemonSet", "mount")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    (shared,) = (each for each in container["volumeMounts"] if each.get("mountPropagation") == "Bidirectional")
    assert container["securityContext"]["privileged"] is True, "Bidirectional is refused without"
    host = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"]}[shared["name"]]
    volume, claim = manifest("PersistentVolume", "volume"), manifest("PersistentVolumeClaim", "volume")
    assert volume["spec"]["hostPath"]["path"] == host == shared["mountPath"]
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert volume["spec"]["claimRef"] == {key: claim["metadata"][key] for key in ("namespace", "name")}
    assert "" == volume["spec"]["storageClassName"] == claim["spec"]["storageClassName"], "no class provisions another"
    for name in ("reader", "spark-pod"):
        spec = manifest("Pod", name)["spec"]
        (mounted,), (claimed,) = spec["containers"][0]["volumeMounts"], spec["volumes"]
        assert (mounted["mountPath"], mounted["mountPropagation"], mounted["readOnly"]) == (
            host,
            "HostToContainer",
            True,
        )
        assert claimed["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def test_commands_of_the_daemon_set_exist() -> None:
    text = (FOLDER / "mount.yaml").read_text()
    commands = set(re.findall(r"(?<=[ '])tierfs ([a-z]+)((?: --?[a-z]+)*)", text.replace("exec tierfs", "tierfs")))
    assert {name for name, _ in commands} == {"replica", "mount", "umount", "status"}
    for name, options in commands:
        told = tierfs(name, "--help").out + tierfs("--help").out
        assert [option for option in options.split() if option not in told] == []
