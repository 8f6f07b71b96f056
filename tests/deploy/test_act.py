"""Which actuators the settings ask for: none unless a block allows it, and one for all clusters alike."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import Publisher, PublisherMetrics
from deploy.act import actuator_parts
from deploy.connections import Connections
from deploy.settings import Settings
from policies.errors import UserError

NOWHERE = "127.0.0.1:1"
KAFKA = {"kafka": {"bootstrap_servers": NOWHERE}}
ZOOKEEPER = {"zookeeper": {"servers": NOWHERE}}
PULSAR = {"pulsar": {"admin_url": f"http://{NOWHERE}"}}
QUOTAS = {**KAFKA, "quotas": {"entities": [{"client_id": "default", "base": 1_000_000}]}}
BOOKIES = {**ZOOKEEPER, "bookies": {}}
SWITCHING = {**ZOOKEEPER, "bookkeeper": {"bootstrap": "old", "clusters": {"old": {}}}, "switching": {}}
QUARANTINE_ON = {"isolation": {"quarantine": "on"}}


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher(KafkaConnection(bootstrap_servers=NOWHERE), PublisherMetrics(CollectorRegistry())) as publisher:
        yield publisher


def names(
    publisher: Publisher, tmp_path: Path, clusters: dict[str, Any], policies: dict[str, Any] | None = None
) -> list[str]:
    """Of the parts that carry decisions out, each of which can say whether it is ready."""
    settings = Settings.model_validate(
        {"kafka": KAFKA["kafka"], "data_dir": str(tmp_path), "clusters": clusters, "policies": policies or {}}
    )
    with Connections(settings) as connections:
        parts = actuator_parts(settings, CollectorRegistry(), publisher, connections)
        assert all(part.ready is not None and part.ready() is not None for part in parts), "none has read anything yet"
        return [part.name for part in parts]


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "quotas": ({"c1": QUOTAS}, {}, ["quota actuator"]),
    "quotas of two clusters": ({"c1": QUOTAS, "c2": QUOTAS}, {}, ["quota actuator"]),
    "bookies with quarantine on": ({"c1": BOOKIES}, QUARANTINE_ON, ["quarantine actuator"]),
    "unload": ({"c1": {**PULSAR, "unload": {}}}, {}, ["unload actuator"]),
    "switching": ({"c1": SWITCHING}, {}, ["switch executor"]),
    "all of them": (
        {"c1": QUOTAS, "c2": BOOKIES, "c3": {**PULSAR, "unload": {}}, "c4": SWITCHING},
        QUARANTINE_ON,
        ["quota actuator", "quarantine actuator", "unload actuator", "switch executor"],
    ),
}


@pytest.mark.parametrize(("clusters", "policies", "expected"), CASES.values(), ids=CASES)
def test_each_kind_has_one_actuator_for_all_clusters_that_allow_it(
    publisher: Publisher, tmp_path: Path, clusters: dict[str, Any], policies: dict[str, Any], expected: list[str]
) -> None:
    assert names(publisher, tmp_path, clusters, policies) == expected


@pytest.mark.parametrize(
    ("clusters", "policies"),
    [
        ({}, {}),
        ({"c1": KAFKA}, {}),
        ({"c1": BOOKIES}, {}),
        ({"c1": BOOKIES}, {"isolation": {"quarantine": "on", "clusters": {"c1": {"quarantine": "off"}}}}),
        ({"c1": PULSAR}, {}),
        ({"c1": {**SWITCHING, "switching": None}}, {}),
    ],
    ids=["no cluster", "Kafka", "quarantine off", "quarantine off for this one", "Pulsar", "BookKeeper"],
)
def test_without_leave_nothing_is_carried_out(
    publisher: Publisher, tmp_path: Path, clusters: dict[str, Any], policies: dict[str, Any]
) -> None:
    assert names(publisher, tmp_path, clusters, policies) == []


def test_quotas_of_what_is_no_kafka_cluster_are_a_mistake(publisher: Publisher, tmp_path: Path) -> None:
    with pytest.raises((UserError, ValidationError), match=r"quotas: needs kafka\.bootstrap_servers"):
        names(publisher, tmp_path, {"c1": {**ZOOKEEPER, "quotas": QUOTAS["quotas"]}})
