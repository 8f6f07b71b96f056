"""One query for a whole cluster: its bookies, its brokers' sessions and a switch, on one ZooKeeper and one Kafka."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from policies.switching.readings import CommandName
from tests.system.isolation import Metadata
from tests.system.loop import UNHURRIED, LoopTopics
from tests.system.sessions import Member
from tests.system.switching import NEW, OLD, BrokerCluster, Clusters, SwitchLoop
from tests.system.waiting import eventually

CLUSTER, NAMESPACE = OLD, "t/ns"
"""As in Pulsar, the brokers keep their metadata beside the ledgers of the BookKeeper cluster that they write to."""
SECOND, STRANGER = "second:3181", "stranger:3181"
"""Bookies that are sessions of ours."""
BUNDLE = "t/ns/0x00000000_0x00000001"
SESSION_SECONDS = 6.0
POLICIES = {
    "isolation": {"quarantine": "on", "grace": "0s", "settle": "1s", "validity": "2h"},
    "sessions": {"settle": "1s", "ownership_rules": "pip57", "validity": "2h"},
    "switching": {"rollback_window": "2s", "cleanup_after": "2s", "clusters": {CLUSTER: {"target_policy": "shared"}}},
}
WATCHED = {
    "bookies": {"poll_interval": "1s", "affinity_interval": "1s"},
    "ownership": {"poll_interval": "500ms", "republish": "1s"},
}


@pytest.fixture
def clusters(bookkeeper_jars: tuple[Path, ...], tmp_path: Path) -> Iterator[Clusters]:
    with Clusters(tmp_path / "clusters", bookkeeper_jars) as clusters:
        yield clusters


@pytest.mark.lean
def test_one_query_quarantines_a_bookie_follows_a_lost_session_and_switches_the_cluster(
    clusters: Clusters, loop_kafka: str, tmp_path: Path
) -> None:
    prefix = f"t{uuid.uuid4().hex[:8]}"
    brokers = BrokerCluster(clusters, CLUSTER, loop_kafka, prefix)
    brokers.make()
    with closing(SwitchLoop(loop_kafka, prefix, tmp_path)) as loop:
        sessions = {"poll_interval": "500ms", "admin_url": clusters.zookeeper.admin_url}
        loop.write({CLUSTER: {**brokers.settings(), **WATCHED, "sessions": sessions}}, POLICIES, UNHURRIED)
        loop.start("run")
        topics = LoopTopics(loop_kafka, prefix, loop.port("run"), "decided.isolation", "decided.sessions", "audit")
        with closing(topics), brokers:
            _quarantines(clusters, topics)
            _follows_a_lost_session(clusters, brokers.brokers[0].name, topics)
            _switches(clusters, brokers, loop)
        assert loop.running.pop("run").stop() == 0


def _quarantines(clusters: Clusters, topics: LoopTopics) -> None:
    members = sorted([clusters.bookies[OLD].bookie_id, SECOND])
    with clusters.zookeeper.client(chroot=f"/{CLUSTER}", timeout=60.0) as client:
        client.create("/bookies", b"{}")
        metadata = Metadata(client)
        metadata.register(SECOND)
        for member in members:
            metadata.assign(member, "g1")
        metadata.isolate(NAMESPACE, "g1")
        placed = {"subject": f"{CLUSTER}/{NAMESPACE}", "verdict": "isolated", "candidates": members}
        _await(topics, "decided.isolation", **placed)
        metadata.register(STRANGER)
        _await(topics, "audit", bookie=STRANGER, outcome="done")
        assert metadata.quarantined() == {STRANGER}
        _await(topics, "decided.isolation", **placed)
        for bookie in (SECOND, STRANGER):
            metadata.leave(bookie)


def _follows_a_lost_session(clusters: Clusters, name: str, topics: LoopTopics) -> None:
    """A broker is cut off until its session is over, registers again and owns its bundle again."""
    decided = {"topic": "decided.sessions", "subject": f"{CLUSTER}/{name}"}
    with Member(name, CLUSTER, clusters.zookeeper.servers, SESSION_SECONDS) as broker:
        broker.own(BUNDLE)
        for metric, labels in (
            ("headgate_sessions", {"role": "broker", "status": "established"}),
            ("headgate_bundles", {"state": "owned"}),
        ):
            eventually(f"{metric} is 1", partial(_is_one, topics, metric, labels))
        lost = broker.session
        broker.cut()
        _await(topics, **decided, verdict="reconnect", reason="session_lost", session=lost)
        broker.heal()
        broker.register()
        _await(topics, **decided, verdict="recover", session=broker.session)
        broker.own(BUNDLE)
        _await(topics, **decided, verdict="resume", reason="recovered")


def _is_one(topics: LoopTopics, metric: str, labels: dict[str, str]) -> bool:
    return topics.metric(metric, cluster=CLUSTER, **labels) == 1


def _switches(clusters: Clusters, brokers: BrokerCluster, loop: SwitchLoop) -> None:
    clusters.advance_new(1)
    brokers.fill(schemas=3, cursors=3)
    brokers.start_agents()
    for name in (OLD, NEW):
        status, said = loop.cli("register", "--cluster", CLUSTER, "--name", name)
        assert status == 0, said
    status, said = loop.cli("start", "--cluster", CLUSTER, "--target", NEW, "--yes")
    assert (status, "READY: old to new" in said) == (0, True), said
    loop.await_stage(CLUSTER, "hold")
    assert brokers.attributions() == {key: {NEW} for key in brokers.ledgers}
    assert brokers.copies_differ() == []
    assert loop.command(CLUSTER, CommandName.CLEANUP, dry_run=False)["verdict"] == "advance"
    loop.await_stage(CLUSTER, "done")
    assert clusters.ledger_ids(OLD, list(brokers.ledgers)) == set()


def _await(topics: LoopTopics, topic: str, **fields: Any) -> None:
    """Wait for a record with these fields."""
    eventually(f"{topic} has {fields}", lambda: bool(topics.entries(topic, **fields)))
