"""The doctor compares the isolation settings with a broker's version and settings."""

from typing import Any

import httpx
import pytest

from connectors.isolation.broker_rules import check_rules
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.connection import PulsarAdmin
from policies.observations import Outcome
from tests.policies.isolation.scenario import isolation


def admin_of(version: str, configuration: dict[str, str | None], status: int = 200) -> AdminApi:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/admin/v2/brokers/version":
            return httpx.Response(200, text=version)
        return httpx.Response(status, json=configuration)

    return AdminApi(PulsarAdmin(admin_url="http://b1:8080"), httpx.MockTransport(answer))


OVERLAP = "upgrade the brokers to 3.0.12, 3.3.7, 4.0.5 or later: "


@pytest.mark.parametrize(
    ("version", "rules", "remedy"),
    [
        ("4.2.4", "current", None),
        ('"4.0.5"', "current", None),
        ("4.0.4", "current", OVERLAP),
        ("3.3.7", "current", None),
        ("3.3.6", "current", OVERLAP),
        ("3.2.4", "current", OVERLAP),
        ("3.0.12-SNAPSHOT", "current", None),
        ("2.11.0", "current", OVERLAP),
        ("2.10.6", "current", "policies.isolation.rules: legacy (these are the rules of 2.10.6)"),
        ("2.10.6", "legacy", None),
        ("4.2.4", "legacy", "policies.isolation.rules: current (these are the rules of 4.2.4)"),
        ("4.2.4", "strict", "policies.isolation.rules: current (no released Pulsar has the strict rules)"),
        ("a build of ours", "current", None),
    ],
)
def test_the_rules_must_fit_the_version(version: str, rules: str, remedy: str | None) -> None:
    found = check_rules(admin_of(version, {}), isolation(rules=rules))
    assert found.detail == f"version {version.strip(chr(34))}; policies.isolation.rules is {rules}"
    assert found.outcome is (Outcome.OK if remedy is None else Outcome.ERROR)
    assert [line.startswith(remedy or "") for line in found.remedies] == [True] * (remedy is not None)


@pytest.mark.parametrize(
    ("configuration", "block", "remedy"),
    [
        (
            {"strictBookieAffinityEnabled": "true"},
            {},
            "policies.isolation.unaffine: ungrouped (strictBookieAffinityEnabled is true)",
        ),
        ({"strictBookieAffinityEnabled": "true"}, {"unaffine": "ungrouped"}, None),
        (
            {"strictBookieAffinityEnabled": "false"},
            {"unaffine": "ungrouped"},
            "policies.isolation.unaffine: any (strictBookieAffinityEnabled is false)",
        ),
        ({"bookkeeperClientIsolationGroups": "a,b"}, {}, None),
        ({"bookkeeperClientIsolationGroups": "a,b"}, {"broker_groups": {"primary": ["b", "a"]}}, None),
        (
            {"bookkeeperClientIsolationGroups": "a", "bookkeeperClientSecondaryIsolationGroups": "s"},
            {"broker_groups": {"primary": ["b"]}},
            "policies.isolation.broker_groups: {primary: [a], secondary: [s]} (as the broker has)",
        ),
    ],
)
def test_the_settings_must_fit_the_brokers(
    configuration: dict[str, str | None], block: dict[str, Any], remedy: str | None
) -> None:
    found = check_rules(admin_of("4.2.4", configuration), isolation(block))
    assert found.remedies == (() if remedy is None else (remedy,))


def test_a_missing_right_is_named() -> None:
    found = check_rules(admin_of("4.2.4", {}, status=401), isolation())
    assert found.outcome is Outcome.UNAUTHORIZED
    assert "only superusers may" in found.remedies[0] or "token" in found.remedies[0]
