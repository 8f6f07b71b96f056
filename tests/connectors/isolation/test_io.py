"""The doctor compares the isolation settings with a broker's version and settings."""

from typing import Any

import httpx
import pytest

from connectors.isolation.io import check_rules
from connectors.isolation.registration import WatchedBookies
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.settings import PulsarAdmin
from connectors.registration import ClusterSources
from policies.observations import Outcome
from tests.cases import for_each
from tests.policies.isolation.scenario import isolation


def admin_of(version: str, configuration: dict[str, str | None], status: int = 200) -> AdminApi:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/admin/v2/brokers/version":
            return httpx.Response(200, text=version)
        return httpx.Response(status, json=configuration)

    return AdminApi(PulsarAdmin(admin_url="http://b1:8080"), httpx.MockTransport(answer))


class Watched(ClusterSources):
    """A cluster with the setting of this policy."""

    bookies: WatchedBookies | None = None


OVERLAP = "upgrade the brokers to 3.0.12, 3.3.7, 4.0.5 or later: "


@for_each(
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


STRICT, GROUPS = "strictBookieAffinityEnabled", "bookkeeperClientIsolationGroups"


@for_each(
    ("configuration", "block", "remedy"),
    [
        ({STRICT: "true"}, {}, "policies.isolation.unaffine: ungrouped (strictBookieAffinityEnabled is true)"),
        ({STRICT: "true"}, {"unaffine": "ungrouped"}, None),
        (
            {STRICT: "false"}, {"unaffine": "ungrouped"},
            "policies.isolation.unaffine: any (strictBookieAffinityEnabled is false)",
        ),
        ({GROUPS: "a,b"}, {}, None),
        ({GROUPS: "a,b"}, {"broker_groups": {"primary": ["b", "a"]}}, None),
        (
            {GROUPS: "a", "bookkeeperClientSecondaryIsolationGroups": "s"}, {"broker_groups": {"primary": ["b"]}},
            "policies.isolation.broker_groups: {primary: [a], secondary: [s]} (as the broker has)",
        ),
    ],
)  # fmt: skip
def test_the_settings_must_fit_the_brokers(
    configuration: dict[str, str | None], block: dict[str, Any], remedy: str | None
) -> None:
    found = check_rules(admin_of("4.2.4", configuration), isolation(block))
    assert found.remedies == (() if remedy is None else (remedy,))


OWN = {"metadataStoreUrl": "zk:zk1:2181,zk2:2181/pulsar"}
CONFIGURATION, BOOKKEEPER = "configurationMetadataStoreUrl", "bookkeeperMetadataServiceUri"


@for_each(
    ("configuration", "watched", "remedy"),
    [
        pytest.param({}, {}, None, id="nothing is said of stores"),
        pytest.param(OWN, {}, None, id="no other store"),
        pytest.param({**OWN, CONFIGURATION: OWN["metadataStoreUrl"]}, {}, None, id="the same store"),
        pytest.param(
            {**OWN, CONFIGURATION: "zk:conf:2181/x"}, {},
            f"configuration_store: {{servers: 'conf:2181/x'}} (the brokers' {CONFIGURATION})",
            id="a configuration store",
        ),
        pytest.param(
            {"zookeeperServers": "zk1:2181", "configurationStoreServers": "conf:2181", "metadataStoreUrl": None}, {},
            f"configuration_store: {{servers: 'conf:2181'}} (the brokers' {CONFIGURATION})", id="older names",
        ),
        pytest.param(
            {**OWN, CONFIGURATION: "zk:conf:2181"}, {"configuration_store": {"servers": "10.0.0.7:2181"}}, None,
            id="named already",
        ),
        pytest.param(
            {**OWN, BOOKKEEPER: "zk+hierarchical://bk1:2181;bk2:2181/ledgers"}, {},
            f"bookies.ledgers: {{servers: 'bk1:2181,bk2:2181'}} (the brokers' {BOOKKEEPER})",
            id="BookKeeper elsewhere",
        ),
        pytest.param(
            {**OWN, BOOKKEEPER: "metadata-store:zk:zk2:2181,zk1:2181/pulsar/bk/ledgers"}, {},
            f"bookies.ledgers_root: /bk/ledgers (the brokers' {BOOKKEEPER})", id="another path",
        ),
        pytest.param({**OWN, BOOKKEEPER: "zk+null://zk1:2181;zk2:2181/pulsar/ledgers"}, {}, None, id="as set"),
        pytest.param({"metadataStoreUrl": "rocksdb:/data"}, {}, None, id="no ZooKeeper"),
    ],
)  # fmt: skip
def test_the_zookeepers_of_the_settings_are_those_of_the_brokers(
    configuration: dict[str, str | None], watched: dict[str, Any], remedy: str | None
) -> None:
    cluster = Watched.model_validate({"zookeeper": {"servers": "zk1:2181,zk2:2181/pulsar"}, "bookies": {}, **watched})
    found = check_rules(admin_of("4.2.4", configuration), isolation(), "c", cluster)
    assert found.remedies == (() if remedy is None else (f"clusters.c.{remedy}",))


def test_a_missing_right_is_named() -> None:
    found = check_rules(admin_of("4.2.4", {}, status=401), isolation())
    assert found.outcome is Outcome.UNAUTHORIZED
    assert "only superusers may" in found.remedies[0] or "token" in found.remedies[0]
