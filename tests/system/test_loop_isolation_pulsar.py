"""Where a real Pulsar puts an isolated namespace's data when nobody assigns a bookie: without Headgate, and with it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.system.bookkeeper import Bookie
from tests.system.isolation import CLUSTER, Metadata, WatchedLoop, watched_loop
from tests.system.loop import UNHURRIED
from tests.system.pulsar import PulsarCluster
from tests.system.pulsar_topics import call, create_namespace, ledgers, produce
from tests.system.runbooks import Operator, find_commands
from tests.system.waiting import eventually

TOPICS = ("before", "one", "two", "three", "four", "five")
ISOLATION = {"quarantine": "on", "grace": "0s", "settle": "1s", "confirm_after": "2s", "member_missing_after": "2s"}


@pytest.fixture(scope="module")
def shared(
    pulsar_jars: tuple[Path, ...], bookkeeper_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PulsarCluster]:
    """Two bookies in the group `g1`."""
    with PulsarCluster(tmp_path_factory.mktemp("pulsar"), pulsar_jars, bookkeeper_jars, bookies=2) as cluster:
        cluster.add_broker(ensemble_size=2)
        for bookie in cluster.bookies:
            set_bookie_rack(cluster, bookie, "g1")
        yield cluster


@pytest.fixture
def cluster(shared: PulsarCluster) -> Iterator[PulsarCluster]:
    """With those two bookies and no others, before and after a test."""
    yield shared
    for bookie in shared.bookies[2:]:
        bookie.stop()
    shared.bookies[0].start()


def promised(cluster: PulsarCluster, namespace: str) -> tuple[str, ...]:
    """Make a namespace with ensembles of two to which `g1` is promised for itself; gives topics of it."""
    create_namespace(cluster, namespace, primary="g1")
    return tuple(f"{namespace}/{topic}" for topic in TOPICS)


def set_bookie_rack(cluster: PulsarCluster, bookie: Bookie, group: str) -> None:
    """What `pulsar-admin bookies set-bookie-rack` does."""
    path = f"/admin/v2/bookies/racks-info/{bookie.bookie_id}?group={group}"
    call(cluster, "POST", path, {"rack": f"/{group}"})


def test_with_headgate_it_is_in_quarantine_first_and_data_waits_until_it_is_assigned(
    cluster: PulsarCluster, pulsar_admin_jars: tuple[Path, ...], loop_kafka: str, tmp_path: Path, free_port: int
) -> None:
    namespace = "t/with"
    before, first_topic, second_topic, *_ = promised(cluster, namespace)
    first, second, *_ = cluster.bookies
    with (
        cluster.zookeeper.client() as client,
        watched_loop(
            zookeeper=cluster.zookeeper.servers,
            loop_kafka=loop_kafka,
            folder=tmp_path,
            port=free_port,
            isolation=ISOLATION,
            stream=UNHURRIED,
        ) as loop,
    ):
        metadata = Metadata(client)
        loop.await_placement(namespace, verdict="isolated", candidates=sorted([first.bookie_id, second.bookie_id]))
        produce(cluster, before, 6)
        third = cluster.add_bookie()
        said = loop.await_quarantine(third.bookie_id)
        assert metadata.quarantined() == {third.bookie_id}
        print(f"leak window of a real bookie {said['leak_window_seconds'] * 1000:.0f} ms")  # noqa: T201

        first.kill()
        loop.await_placement(namespace, verdict="infeasible", candidates=[second.bookie_id], leak=[])
        infeasible = loop.await_alert("placement-infeasible", namespace, "firing")
        assert infeasible.data["severity"] == "critical"
        for topic in (before, first_topic):
            assert not _is_written(cluster, topic)
        assert metadata.ledgers_on(third.bookie_id, namespace) == set()
        assert loop.statuses("isolation-leak", namespace) == []

        operator = Operator(tmp_path / "tools")
        operator.install_pulsar_admin(pulsar_admin_jars, cluster.admin_url)
        follow_runbook(loop, operator, "unassigned-bookie", third, GROUP="g1", RACK="/g1")
        loop.await_alert("placement-infeasible", namespace, "resolved")
        loop.await_alert("unassigned-bookie", third.bookie_id, "resolved")
        assert metadata.quarantined() == set()
        eventually("it is written again", lambda: _is_written(cluster, second_topic))
        assert set(ledgers(cluster, second_topic).values()) == {frozenset({second.bookie_id, third.bookie_id})}
        assert loop.statuses("unassigned-bookie", third.bookie_id) == ["firing", "resolved"]

        loop.await_alert("group-member-missing", first.bookie_id, "firing")
        follow_runbook(loop, operator, "group-member-missing", first)
        loop.await_alert("group-member-missing", first.bookie_id, "resolved")
        assert set(metadata.racks()["g1"]) == {second.bookie_id, third.bookie_id}


def follow_runbook(loop: WatchedLoop, operator: Operator, alert: str, bookie: Bookie, **values: str) -> None:
    """Paste the command that `headgate explain` prints for an alert about a bookie."""
    explained = loop.command("explain", f"{CLUSTER}/{bookie.bookie_id}")
    (command,) = find_commands(explained, "isolation", alert)
    operator.run([command], values)


def _is_written(cluster: PulsarCluster, topic: str) -> bool:
    """Whether a topic takes messages; the broker refuses, or does not answer in time, when it cannot make a ledger."""
    try:
        produce(cluster, topic, 6)
    except (AssertionError, httpx.TimeoutException):
        return False
    return True
