"""What docker/ holds: Kubernetes takes it, what comes from elsewhere is fresh, and nobody there is root."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from connectors.kafka.rights import rights
from deploy.monitoring import dashboards
from deploy.reference import kubernetes
from deploy.settings.file import load_settings
from tests.cases import case

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker/kubernetes"
VERSIONS = ("1.29", "1.33")
"""The oldest that is meant to take them, and a later one."""
CUSTOM = ("kustomize.config.k8s.io", "monitoring.coreos.com", "kafka.strimzi.io")
"""Of these the schemas are not Kubernetes'."""


def documents(pattern: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(FOLDER.glob(pattern)):
        for document in yaml.safe_load_all(file.read_text()):
            yield f"{file.parent.name}/{file.name}:{document.get('kind', 'settings')}", document


@cache
def manifests() -> list[tuple[str, dict[str, Any]]]:
    return [each for each in documents("*/*.yaml") if "apiVersion" in each[1]]


def workloads() -> list[tuple[str, dict[str, Any]]]:
    return [each for each in manifests() if each[1]["kind"] in ("Deployment", "StatefulSet")]


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_each_manifest(version: str) -> None:
    for name, manifest in manifests():
        if not manifest["apiVersion"].startswith(CUSTOM):
            with case(name):
                kubernetes_validate.validate(manifest, version, strict=True)


def test_the_check_can_fail() -> None:
    wrong = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"prots": []}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def test_what_comes_from_elsewhere_is_fresh() -> None:
    for name, content in kubernetes.files().items():
        assert (kubernetes.FOLDER / name).read_text() == content, f"{name} is stale: run `make generate`"


@pytest.mark.parametrize("folder", sorted(each.parent for each in FOLDER.glob("*/kustomization.yaml")))
def test_a_kustomization_names_every_file_beside_it(folder: Path) -> None:
    found = yaml.safe_load((folder / "kustomization.yaml").read_text())
    named = {*found["resources"], *(file for each in found.get("configMapGenerator", ()) for file in each["files"])}
    assert named - {"../base"} == {each.name for each in folder.iterdir()} - {"kustomization.yaml"}


def test_the_users_of_strimzi_have_the_rights_of_their_parts_and_no_others() -> None:
    users = {each["metadata"]["name"]: each for _, each in documents("strimzi/users.yaml")}
    own = {part: grants for part, grants in rights().items() if part != "canary"}  # no process of its own
    assert set(users) == {f"headgate-{part}" for part in own}
    for part, grants in own.items():
        acls = users[f"headgate-{part}"]["spec"]["authorization"]["acls"]
        found = {(*acl["resource"].values(), *acl["operations"]) for acl in acls}
        assert found == {
            (g.resource.value, f"headgate.{g.name}", "prefix" if g.is_prefix else "literal", *g.operations)
            for g in grants
        }


def test_nobody_is_root_writes_into_the_image_or_goes_unprobed() -> None:
    assert "useradd --uid 10001" in (ROOT / "docker/Dockerfile").read_text()
    for name, workload in workloads():
        pod = workload["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        with case(name):
            assert pod["securityContext"]["runAsUser"] == 10001
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"startupProbe", "livenessProbe", "readinessProbe", "resources"} <= container.keys()
            assert not pod["automountServiceAccountToken"]
            assert container["args"][1:] == ["--settings", "/etc/headgate/headgate.yaml"]


def test_each_part_is_a_workload_with_a_service_and_a_budget() -> None:
    parts = {name for name, _ in workloads()}
    assert len(parts) == 4
    for kind in ("Service", "PodDisruptionBudget"):
        assert len([m for _, m in manifests() if m["kind"] == kind]) == len(parts)


@pytest.mark.parametrize("file", ["kubernetes/base/headgate.yaml", "headgate.yaml"])
def test_the_settings_there_are_good(file: str) -> None:
    assert load_settings(ROOT / "docker" / file).clusters


def test_compose_mounts_only_what_is_there() -> None:
    compose = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())
    volumes = [volume for service in compose["services"].values() for volume in service.get("volumes", ())]
    mounted = [volume.split(":")[0] for volume in volumes]
    files = [each for each in mounted if each.startswith(".")]
    assert len(files) >= 7
    assert [each for each in files if not (ROOT / "docker" / each).resolve().exists()] == []
    assert set(mounted) - set(files) == set(compose["volumes"])


def test_the_dashboards_ask_the_source_that_compose_provides() -> None:
    source = yaml.safe_load((ROOT / "docker/grafana/datasource.yaml").read_text())["datasources"][0]
    assert source["type"] == "prometheus"
    assert source["isDefault"]
    assert dashboards.__doc__
