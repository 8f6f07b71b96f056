"""Which collectors the settings ask for: those of each watched cluster, and none of what is not named."""

from contextlib import ExitStack
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from connectors.partitions.membership import PartitionLease
from deploy.processes.parts import Connections, collecting
from deploy.processes.shared_components import Work
from deploy.settings.application import Settings
from policies.units import UserError
from policies.wire import SHARE_COUNT, share_of
from tests.cases import for_each

NOWHERE = "127.0.0.1:1"
KAFKA = {"kafka": {"bootstrap_servers": NOWHERE}}
ZOOKEEPER = {"zookeeper": {"servers": NOWHERE}}
BOOKIES, SESSIONS = {**ZOOKEEPER, "bookies": {}}, {**ZOOKEEPER, "sessions": {}}
BOOKIE_URL, MEMBER_URL = {"bookie_url": "http://{host}:8000"}, {"member_url": "http://{member}"}
PULSAR = {"pulsar": {"admin_url": f"http://{NOWHERE}"}}


def collectors(settings: Settings, connections: Connections) -> Work:
    return collecting(settings, CollectorRegistry(), lambda *_: None, connections)


def names(clusters: dict[str, Any]) -> list[str]:
    """Of the parts that collect."""
    settings = Settings.model_validate({"clusters": clusters})
    with Connections(settings) as connections, ExitStack() as opened:
        work, no_lease = collectors(settings, connections), cast("PartitionLease", None)
        held = work.of_shares(frozenset(range(SHARE_COUNT)))
        units = [work.open(cluster, held, no_lease) for cluster in settings.clusters if cluster in held]
        return [part.name for unit in units for part in opened.enter_context(unit)]


CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a Kafka cluster": (KAFKA, ["collector of c1"]),
    "bookies by ZooKeeper": (BOOKIES, ["bookie collector of c1"]),
    "bookies by Pulsar": ({**PULSAR, "pulsar_bookies": BOOKIE_URL}, ["bookie collector of c1"]),
    "sessions": (SESSIONS, ["session collector of c1"]),
    "ownership": ({**SESSIONS, "ownership": {}}, ["session collector of c1", "ownership collector of c1"]),
    "health": ({**SESSIONS, **PULSAR, "health": MEMBER_URL}, ["session collector of c1", "health collector of c1"]),
}


@for_each(("cluster", "expected"), CASES.values(), ids=CASES)
def test_each_block_of_a_cluster_asks_for_its_collector(cluster: dict[str, Any], expected: list[str]) -> None:
    assert names({"c1": cluster}) == expected


def test_every_cluster_has_collectors_of_its_own() -> None:
    assert names({"payments": KAFKA, "orders": KAFKA}) == ["collector of payments", "collector of orders"]


@pytest.mark.parametrize("clusters", [{}, {"c1": ZOOKEEPER}, {"c1": PULSAR}], ids=["no cluster", "ZooKeeper", "Pulsar"])
def test_to_know_where_a_cluster_is_does_not_mean_to_watch_it(clusters: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="clusters: nothing is watched"):
        names(clusters)


def test_a_process_collects_the_clusters_of_its_shares_each_by_itself() -> None:
    names_of_clusters = [f"c{number}" for number in range(30)]
    settings = Settings.model_validate({"clusters": dict.fromkeys(names_of_clusters, KAFKA)})
    with Connections(settings) as connections:
        work = collectors(settings, connections)
    shares = [frozenset(range(5)), frozenset(range(5, SHARE_COUNT))]
    held = [work.of_shares(each) for each in shares]
    assert held[0] | held[1] == set(names_of_clusters)
    assert not held[0] & held[1]
    assert all(share_of(cluster) in shares[0] for cluster in held[0])
    assert work.units(held[0]) == {cluster: {cluster} for cluster in held[0]}


def test_processes_share_only_with_those_that_collect_the_same() -> None:
    def group(**clusters: dict[str, Any]) -> str:
        settings = Settings.model_validate({"clusters": clusters})
        with Connections(settings) as connections:
            return collectors(settings, connections).group.name

    log_dirs = group(c1=KAFKA, c2=KAFKA)
    assert log_dirs == group(c2=KAFKA, c1=KAFKA)
    assert log_dirs == group(c1=KAFKA, c2=KAFKA, c3={}), "watched by others"
    others = [group(c1=KAFKA), group(c1=KAFKA, c3=KAFKA), group(c1=BOOKIES, c2=BOOKIES)]
    assert len({log_dirs, *others}) == 4
