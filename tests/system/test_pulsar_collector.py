"""The admin REST of a real Pulsar, and the collector that reads bookies, groups and affinity through it."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
from prometheus_client import CollectorRegistry

from connectors.collection import PollMetrics
from connectors.http.rest import AdminError, describe_rest_error, outcome_of
from connectors.isolation.collector import BookieCollector, PulsarBookies
from connectors.isolation.io import check_rules
from connectors.isolation.registration import WatchedPulsarBookies
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.settings import PulsarAdmin
from policies.bookie_readings import BookieAffinity, BookieRacks, Bookies, NamespaceAffinity, RackInfo
from policies.isolation.decisions import QUARANTINE_GROUP, QUARANTINE_RACK
from policies.isolation.settings import IsolationSettings, RuleSet, Unaffine
from policies.observations import Outcome, Reading
from policies.units import parse_duration
from tests.system.pulsar import CLUSTER, PulsarCluster
from tests.system.pulsar_topics import (
    create_namespace,
    isolate_brokers,
    owner_of,
    produce,
    set_affinity,
    set_persistence,
)
from tests.system.test_quarantine_actuator import Acting, Meddled
from tests.system.waiting import eventually

WHOLE_RANGE = "0x00000000_0xffffffff"


class Stack(PulsarCluster):
    """One bookie with the HTTP endpoint, and two without."""

    bookie_url = ""


@pytest.fixture(scope="module")
def cluster(
    pulsar_jars: tuple[Path, ...], bookkeeper_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("pulsar"), pulsar_jars, bookkeeper_jars, bookies=2) as cluster:
        _, cluster.bookie_url = cluster.add_http_bookie()
        cluster.add_broker(session_timeout_ms=20_000)  # it outlives being frozen
        yield cluster


@contextmanager
def admin_of(admin_url: str, timeout: str = "30s") -> Iterator[AdminApi]:
    admin = AdminApi(PulsarAdmin(admin_url=admin_url, timeout=parse_duration(timeout)))
    try:
        yield admin
    finally:
        admin.close()


@pytest.fixture
def admin(cluster: Stack) -> Iterator[AdminApi]:
    with admin_of(cluster.admin_url) as admin:
        yield admin


class Watch:
    """A collector, and what it published."""

    def __init__(self, admin: AdminApi, **settings: object) -> None:
        self.readings: list[Reading] = []
        watched = WatchedPulsarBookies.model_validate(settings)
        metrics = PollMetrics(CollectorRegistry())
        self.collector = BookieCollector(PulsarBookies("c1", watched, admin), self.readings.append, metrics)

    def poll(self) -> tuple[Bookies, BookieRacks, BookieAffinity]:
        self.readings.clear()
        self.collector.poll_once()
        self.collector.poll_affinity_once()
        bookies, racks, affinity = self.readings
        assert isinstance(bookies, Bookies)
        assert isinstance(racks, BookieRacks)
        assert isinstance(affinity, BookieAffinity)
        return bookies, racks, affinity

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.collector.close()

    def outcomes(self) -> list[Outcome]:
        return [reading.outcome for reading in self.poll()]


@pytest.fixture
def watch(cluster: Stack, admin: AdminApi) -> Iterator[Watch]:
    with Watch(admin, bookie_url=cluster.bookie_url) as watch:
        yield watch


def test_groups_set_through_the_client_are_read_back(cluster: Stack, admin: AdminApi, watch: Watch) -> None:
    first = cluster.bookie_ids[0]
    admin.set_rack(first, "g1", "/r1", "host-1")
    admin.set_rack("custom/id 1", "g 2", "/r2")
    _, racks, _ = watch.poll()
    assert racks.groups == {
        "g1": {first: RackInfo(rack="/r1", hostname="host-1")},
        "g 2": {"custom/id 1": RackInfo(rack="/r2")},
    }
    admin.set_rack(first, "g3", "/r3")
    assert admin.racks()["g3"] == {first: RackInfo(rack="/r3")}
    assert first not in admin.racks().get("g1", {}), "a bookie is in one group"


def test_writable_read_only_and_dead_bookies_are_told_apart(cluster: Stack, admin: AdminApi, watch: Watch) -> None:
    first, second, third = cluster.bookie_ids
    bookies, _, _ = watch.poll()
    assert [(b.bookie, b.session, b.czxid) for b in bookies.writable] == [
        (bookie, None, None) for bookie in sorted(cluster.bookie_ids)
    ]
    assert bookies.known == tuple(sorted(cluster.bookie_ids))

    properties = {"bookieId": "custom-1", "readOnlyModeEnabled": "true", "forceReadOnlyBookie": "true"}
    cluster.add_bookie(properties=properties)
    cluster.bookies[0].stop()
    try:
        eventually("the dead one is gone", lambda: first not in {b.bookie for b in watch.poll()[0].writable})
        bookies, _, _ = watch.poll()
        assert {b.bookie for b in bookies.writable} == {second, third}
        assert [b.bookie for b in bookies.read_only] == ["custom-1"]
        assert first in admin.known_bookies(), "Pulsar's own list keeps the dead: it cannot stand for the registered"
        assert set(bookies.known) == {first, second, third, "custom-1"}
    finally:
        cluster.bookies[0].start()
        cluster.bookies.pop().kill()


def test_without_the_bookies_endpoint_only_they_are_unread(admin: AdminApi) -> None:
    with Watch(admin, bookie_url="http://127.0.0.1:9") as watch:
        bookies, racks, affinity = watch.poll()
    assert (bookies.outcome, bookies.writable) == (Outcome.UNREACHABLE, ())
    assert (racks.outcome, affinity.outcome) == (Outcome.OK, Outcome.OK)


def test_affinity_is_read_back_with_the_persistence(cluster: Stack, admin: AdminApi, watch: Watch) -> None:
    create_namespace(cluster, "a/plain")
    create_namespace(cluster, "a/isolated", primary="g1,g2", secondary="g3")
    create_namespace(cluster, "b/sized", primary="g1")
    set_persistence(cluster, "b/sized", ensemble=3, write=2, ack=1)
    assert (admin.affinity("a/none"), admin.persistence("a/none"), admin.namespaces("none")) == (None, None, ())
    _, _, reading = watch.poll()
    assert (reading.outcome, reading.detail) == (Outcome.OK, None)
    assert reading.namespaces == {
        "a/isolated": NamespaceAffinity(primary=("g1", "g2"), secondary=("g3",)),
        "b/sized": NamespaceAffinity(primary=("g1",), ensemble_size=3, write_quorum=2, ack_quorum=1),
    }
    set_affinity(cluster, "b/sized", primary="")
    isolate_brokers(cluster, "p1", "a/.*", primary="broker-1.*", secondary="broker-2.*")
    (policy,) = watch.poll()[2].broker_policies or ()
    assert (policy.pulsar_cluster, policy.name, policy.namespaces) == (CLUSTER, "p1", ("a/.*",))
    assert (policy.primary, policy.secondary, policy.min_available) == (("broker-1.*",), ("broker-2.*",), 1)
    assert set(watch.poll()[2].namespaces) == {"a/isolated"}


def test_a_bundle_is_unloaded_by_the_broker_that_owns_it_whoever_is_asked(cluster: Stack, admin: AdminApi) -> None:
    second = cluster.add_broker()
    try:
        create_namespace(cluster, "u/ns")
        admin.unload("u/ns", WHOLE_RANGE)  # nobody owns it yet
        produce(cluster, "u/ns/topic", 1)
        owner = owner_of(cluster.admin_url, "u/ns/topic", "httpUrl")
        (other,) = (broker for broker in cluster.brokers if broker.admin_url != owner)
        with cluster.zookeeper.client() as client, admin_of(other.admin_url) as asked:
            owned = client.exists(f"/namespace/u/ns/{WHOLE_RANGE}")
            assert owned is not None
            asked.unload("u/ns", WHOLE_RANGE)
            now = client.exists(f"/namespace/u/ns/{WHOLE_RANGE}")
            assert now is None or now.czxid > owned.czxid, "given up, though somebody may have taken it since"
        eventually("both are listed", lambda: set(admin.brokers(CLUSTER)) == {b.broker_id for b in cluster.brokers})
        admin.check_health()
    finally:
        second.stop()
        cluster.brokers.remove(second)


@pytest.mark.parametrize("path", ["/wrong", "/lookup"])
def test_a_wrong_address_is_unsupported(cluster: Stack, path: str) -> None:
    with admin_of(cluster.admin_url + path) as admin, Watch(admin, bookie_url=cluster.admin_url) as watch:
        readings = watch.poll()
    for reading in readings:
        assert (reading.outcome, "no such API" in (reading.detail or "")) == (Outcome.UNSUPPORTED, True)


def test_what_pulsar_does_not_find_is_an_error_in_its_own_words(admin: AdminApi) -> None:
    with pytest.raises(AdminError) as caught:
        admin.lookup("t/none/topic")
    assert outcome_of(caught.value) is Outcome.ERROR
    assert describe_rest_error(caught.value).endswith("status 404: Namespace not found")


def test_a_frozen_broker_is_a_timeout_and_a_stopped_one_unreachable(cluster: Stack) -> None:
    broker = cluster.brokers[0]
    with admin_of(cluster.admin_url, "2s") as admin, Watch(admin, bookie_url=cluster.bookie_url) as watch:
        eventually("it answers in time", lambda: watch.outcomes() == [Outcome.OK] * 3)
        with broker.frozen():
            began = time.monotonic()
            assert watch.outcomes() == [Outcome.TIMEOUT] * 3
            assert time.monotonic() - began >= 3 * 2
        eventually("it answers again", lambda: watch.outcomes() == [Outcome.OK] * 3)
        broker.stop()
        bookies, racks, affinity = watch.poll()
        assert [r.outcome for r in (bookies, racks, affinity)] == [Outcome.UNREACHABLE] * 3
        assert "refused" in (racks.detail or "")
        broker.start()
        eventually("it answers once more", lambda: watch.outcomes() == [Outcome.OK] * 3)


def test_by_a_real_pulsars_rest_a_bookie_is_put_into_quarantine_too(cluster: Stack) -> None:
    """The last here: it begins with no groups, and leaves its own."""
    theirs, free, _ = cluster.bookie_ids
    with admin_of(cluster.admin_url) as api, cluster.zookeeper.client() as client:
        client.ensure_path("/bookies")
        client.set("/bookies", b"{}")
        eventually("there are no groups", lambda: api.racks() == {})
        watched = WatchedPulsarBookies(bookie_url=cluster.bookie_url)
        with Acting(Meddled(PulsarBookies("c1", watched, api).open_store())) as actor:
            actor.decide(free)
            actor.awaits("no_groups", free)
            api.set_rack(theirs, "default", "/r1")
            actor.decide("nobody:1", theirs)
            actor.awaits("not_registered", "nobody:1")
            assert actor.awaits("already_assigned", theirs)["found_group"] == "default"
            actor.decide(free, sequence=2)
            assert actor.awaits("done", free)["attempt"] == 1
        assert json.loads(client.get("/bookies")[0]) == {
            "default": {theirs: {"rack": "/r1"}},
            QUARANTINE_GROUP: {free: {"rack": QUARANTINE_RACK, "hostname": "127.0.0.1"}},
        }


def test_the_rules_fit_the_broker_s_version_and_settings(admin: AdminApi) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", admin.version())
    assert check_rules(admin, IsolationSettings()).outcome is Outcome.OK
    found = check_rules(admin, IsolationSettings(rules=RuleSet.LEGACY, unaffine=Unaffine.UNGROUPED))
    assert [line.split(" (")[0] for line in found.remedies] == [
        "policies.isolation.rules: current",
        "policies.isolation.unaffine: any",
    ]
