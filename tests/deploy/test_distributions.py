"""The Helm chart, and the pages that the wheel carries."""

import json
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from deploy.pages import Page
from deploy.settings.file import load_settings

ROOT = Path(__file__).parents[2]
CHART = ROOT / "docker/helm"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def program(name: str) -> str:
    """Find a program on the path, or where `go install` puts it."""
    found = shutil.which(name) or shutil.which(name, path=Path.home() / "go/bin")
    if found is None:
        pytest.skip(f"{name} is not on this machine")
    return found


# The chart


def refusals(values: Any) -> Iterator[str]:
    schema = json.loads((CHART / "values.schema.json").read_text())
    return (error.message for error in Draft202012Validator(schema).iter_errors(values))


def changed(path: str, value: Any) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(json.dumps(VALUES))
    *parents, last = path.split(".")
    block = values
    for name in parents:
        block = block[name]
    block[last] = value
    return values


def test_the_chart_accepts_its_own_values() -> None:
    assert list(refusals(VALUES)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("settings.policies.throttle.sooft", {}),
        ("settings.kafka.bootstrap_server", "loop:9092"),
        ("settings.clusters.payments.kafka.poll_interval", []),
        ("parts.decide.replica", 2),
        ("parts.decider", {}),
        ("image.tag", 1),
        ("networkPolicy.egress", [{"port": 70_000, "endPort": 9092}]),
    ],
)
def test_the_chart_refuses_a_mistake_in_values_or_settings(path: str, value: Any) -> None:
    assert len(list(refusals(changed(path, value)))) == 1


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (PROJECT["version"],) * 2


@pytest.mark.parametrize("version", ["1.29", "1.33"])
def test_kubernetes_takes_what_helm_renders(version: str) -> None:
    command = [program("helm"), "template", "headgate", str(CHART), "--kube-version", version]
    rendered = subprocess.run(
        [*command, "--set", "prometheusOperator.enabled=true"], check=True, capture_output=True, text=True
    ).stdout
    manifests = [each for each in yaml.safe_load_all(rendered) if each]
    kinds = {each["kind"] for each in manifests}
    assert {"StatefulSet", "Deployment", "ConfigMap", "NetworkPolicy", "ServiceMonitor", "PrometheusRule"} <= kinds
    for manifest in manifests:
        if not manifest["apiVersion"].startswith("monitoring.coreos.com"):
            kubernetes_validate.validate(manifest, version, strict=True)
    (settings,) = (each for each in manifests if each["kind"] == "ConfigMap")
    assert yaml.safe_load(settings["data"]["headgate.yaml"]) == VALUES["settings"]
    workloads = [each for each in manifests if each["kind"] in ("Deployment", "StatefulSet")]
    assert len(workloads) == 4
    for kind in ("Service", "PodDisruptionBudget"):
        assert len([each for each in manifests if each["kind"] == kind]) == len(workloads)
    for workload in workloads:
        _is_confined(workload["spec"]["template"]["spec"])


def _is_confined(pod: dict[str, Any]) -> None:
    """Nobody is root, writes into the image or goes unprobed."""
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsUser"] == 10001
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"startupProbe", "livenessProbe", "readinessProbe", "resources"} <= container.keys()
    probed = {container[f"{each}Probe"]["httpGet"]["port"] for each in ("startup", "liveness", "readiness")}
    assert probed == {"probes"}, "a listener of its own"
    assert {"name": "HEADGATE_HTTP__PROBES_PORT", "value": "9409"} in container["env"]
    assert {"name": "probes", "containerPort": 9409} in container["ports"]
    assert not pod["automountServiceAccountToken"]
    assert container["args"][1:] == ["--settings", "/etc/headgate/headgate.yaml"]


def test_the_settings_of_the_chart_are_good(tmp_path: Path) -> None:
    (tmp_path / "headgate.yaml").write_text(yaml.safe_dump(VALUES["settings"]))
    assert load_settings(tmp_path / "headgate.yaml").clusters


def test_helm_refuses_a_mistyped_setting_before_anything_is_installed() -> None:
    command = [program("helm"), "template", "headgate", str(CHART), "--kube-version", "1.33"]
    wrong = subprocess.run(
        [*command, "--set", "settings.policies.throttle.sooft=1"], check=False, capture_output=True, text=True
    )
    assert wrong.returncode == 1
    assert "at '/settings/policies/throttle': additional properties 'sooft' not allowed" in wrong.stderr


# The pages


@pytest.mark.parametrize(("page", "begins"), [(Page.SETTINGS, "# "), (Page.ALERTS, "# "), (Page.METRICS, "# ")])
def test_an_installation_carries_its_reference_pages(page: Page, begins: str) -> None:
    assert page.read().startswith(begins)
