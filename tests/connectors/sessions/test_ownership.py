"""Ownership as ZooKeeper shows it, and as the brokers report it, and how readings of many nodes travel."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.pulsar.admin import AdminApi
from connectors.pulsar.settings import PulsarAdmin
from connectors.sessions.io import check_brokers
from connectors.sessions.ownership import MAX_SILENCE_SECONDS, BrokerOwnership, split_reading
from connectors.zookeeper.json_znodes import digest, load_manager, owner_member
from policies.observations import Outcome
from policies.sessions.readings import NodeKind, OwnedNode, Ownerships
from policies.units import from_millis
from policies.wire import MAX_RECORD_BYTES, observation_event
from tests.cases import for_each

# As Pulsar 4.2 writes them.
BUNDLE = (
    b'{"nativeUrl":"pulsar://b1.example.org:6650","nativeUrlTls":null,"httpUrl":"http://b1.example.org:8080",'
    b'"httpUrlTls":null,"disabled":false,"advertisedListeners":{}}'
)


@for_each(
    ("value", "member"),
    [
        (BUNDLE, "b1.example.org:8080"),
        (b'{"brokerId":"b1:8080","serviceUrl":"http://other:1"}', "b1:8080"),
        (b'{"webServiceUrl":"http://b1:8080","pulsarServiceUrl":"pulsar://b1:6650"}', "b1:8080"),
        (b'{"serviceUrl":"http://b1:8080"}', "b1:8080"),
        (b'{"httpUrl":null,"httpUrlTls":"https://b1:8443"}', "b1:8443"),
        (b'{"nativeUrl":"pulsar://b1:6650"}', "b1:6650"),
        (b'{"httpUrl":"http://[::1]:8080"}', "[::1]:8080"),
        (b'{"httpUrl":"http://user:word@b1:8080/"}', "b1:8080"),
        (b'{"httpUrl":"http://b1"}', None),
        (b'{"httpUrl":"http://[::1:8080"}', None),
        (b'{"brokerId":""}', None),
        (b'{"brokerId":7}', None),
        (b'{"brokerId":"' + b"b" * 1001 + b'"}', None),
        (b"{}", None),
        (b"[]", None),
        (b"", None),
        (b"b1:8080", None),
        (b"\xff\xfe", None),
        (b"[" * 100_000, None),
    ],
)
def test_the_owner_is_whom_the_value_names(value: bytes, member: str | None) -> None:
    assert owner_member(value) == member


@given(st.binary(max_size=100))
def test_any_value_at_all_names_a_member_or_none(value: bytes) -> None:
    owner_member(value)
    assert digest(value) == digest(bytes(value))
    assert digest(value) != digest(value + b"x")


def nodes(count: int, namespace: str = "tenant/ns", owner: str = "b1.example.org:8080") -> list[OwnedNode]:
    return [
        OwnedNode(
            path=f"/namespace/{namespace}/0x{number:08x}_0x{number + 1:08x}", kind=NodeKind.BUNDLE, owner_member=owner,
            value_digest=digest(b""), session="0xffffffffffffffff", czxid=2**63 - 1, version=2**31 - 1,
        )
        for number in range(count)
    ]  # fmt: skip


def test_a_tree_travels_in_one_record_as_long_as_it_fits() -> None:
    whole = nodes(10_000)
    (reading,) = split_reading("payments", "/namespace", whole, ["/namespace/tenant"])
    assert (reading.tree, reading.nodes) == ("/namespace", tuple(whole))


def test_a_larger_one_travels_by_tenant_the_empty_ones_too() -> None:
    first, second = nodes(9000, "first/ns"), nodes(9000, "second/ns")
    branches = ["/namespace/empty", "/namespace/first", "/namespace/second"]
    readings = list(split_reading("payments", "/namespace", [*first, *second], branches))
    assert [(reading.tree, len(reading.nodes)) for reading in readings] == [
        ("/namespace/empty", 0),
        ("/namespace/first", 9000),
        ("/namespace/second", 9000),
    ]
    assert all(reading.outcome is Outcome.OK for reading in readings)


def test_a_tenant_that_is_too_large_is_told_and_leaves_the_others_readable() -> None:
    large, small = nodes(20_000, "large/ns"), nodes(1, "small/ns")
    branches = ["/namespace/large", "/namespace/small"]
    of_large, of_small = split_reading("payments", "/namespace", [*large, *small], branches)
    assert (of_large.outcome, of_large.nodes) == (Outcome.UNSUPPORTED, ())
    assert "20000 nodes" in (of_large.detail or "")
    assert len(of_small.nodes) == 1


@pytest.mark.parametrize("owner", ["b:1", "b" * 1000, "ü" * 500], ids=["short", "long", "not ASCII"])
def test_what_is_said_to_fit_fits(owner: str) -> None:
    count = 1
    while len(list(split_reading("p", "/namespace", nodes(2 * count, owner=owner), []))) == 1:
        count *= 2
    (reading,) = split_reading("p", "/namespace", nodes(count, owner=owner), [])
    record = observation_event(reading, id="i" * 100, source="s" * 100, time=from_millis(0))
    assert MAX_RECORD_BYTES / 4 < len(record) <= MAX_RECORD_BYTES


# --- Ownership as the brokers report it, where ZooKeeper does not show it


B1, B2 = "b1:8080", "b2:8080"
X, Y = "t/ns/0x00000000_0x80000000", "t/ns/0x80000000_0xffffffff"
EXTENSIBLE = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
STATUS = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}

Answers = dict[str, tuple[int, Any]]
"""By broker: the status and the document of its answer."""


def owns(*bundles: str) -> tuple[int, Any]:
    return 200, dict.fromkeys(bundles, STATUS)


def admin_of(answers: Mapping[str, tuple[int, Any]]) -> AdminApi:
    def answer(request: httpx.Request) -> httpx.Response:
        name = request.url.path.split("/")[-2]
        status, document = answers[name]
        return httpx.Response(status, json=document)

    return AdminApi(PulsarAdmin(admin_url="http://b1:8080"), httpx.MockTransport(answer))


def registration(member: str) -> OwnedNode:
    path = f"/loadbalance/brokers/{member}"
    return OwnedNode(path=path, owner_member=member, session=f"0x{member[:2]}", load_manager=EXTENSIBLE)


BOTH = (registration(B1), registration(B2))


def owners(reading: Ownerships) -> dict[str, tuple[str | None, str | None]]:
    assert reading.outcome is Outcome.OK
    return {node.path.removeprefix("/namespace/"): (node.owner_member, node.session) for node in reading.nodes}


def test_each_broker_owns_what_it_answers_with_the_session_of_its_registration() -> None:
    read = BrokerOwnership("test", admin_of({B1: owns(X), B2: owns(Y)})).read(BOTH)
    assert owners(read) == {X: (B1, "0xb1"), Y: (B2, "0xb2")}
    assert read.tree == "/namespace"


def test_the_bundles_of_a_broker_that_does_not_answer_exist_and_their_owner_is_unknown() -> None:
    answers: Answers = {B1: owns(X), B2: owns(Y)}
    brokers = BrokerOwnership("test", admin_of(answers))
    brokers.read(BOTH)
    answers[B1] = (503, {"reason": "busy"})
    assert owners(brokers.read(BOTH)) == {X: (None, None), Y: (B2, "0xb2")}
    answers[B2] = owns(X, Y)
    assert owners(brokers.read(BOTH)) == {X: (B2, "0xb2"), Y: (B2, "0xb2")}


def test_a_short_silence_of_all_brokers_leaves_their_bundles_known_and_a_long_one_does_not() -> None:
    now = 0.0
    answers: Answers = {B1: owns(X), B2: owns(Y)}
    brokers = BrokerOwnership("test", admin_of(answers), lambda: now)
    brokers.read(BOTH)
    answers |= {B1: (503, {"reason": "busy"}), B2: (503, {"reason": "busy"})}
    now = MAX_SILENCE_SECONDS - 1
    assert owners(brokers.read(BOTH)) == {X: (None, None), Y: (None, None)}
    now = MAX_SILENCE_SECONDS
    assert brokers.read(BOTH).outcome is Outcome.UNSUPPORTED


def test_the_bundles_of_a_broker_that_is_not_registered_any_more_are_absent_until_another_owns_them() -> None:
    answers: Answers = {B1: owns(X), B2: owns()}
    brokers = BrokerOwnership("test", admin_of(answers))
    brokers.read(BOTH)
    assert owners(brokers.read(BOTH[1:])) == {}
    answers[B2] = owns(X)
    assert owners(brokers.read(BOTH[1:])) == {X: (B2, "0xb2")}


@pytest.mark.parametrize(
    ("admin", "detail"),
    [
        (None, "set pulsar.admin_url"),
        (admin_of({B1: (401, {}), B2: (401, {})}), "no broker says which bundles it owns"),
    ],
    ids=["no REST", "no answer"],
)
def test_ownership_that_nobody_tells_is_unknown_and_no_fault_of_zookeeper(admin: AdminApi | None, detail: str) -> None:
    read = BrokerOwnership("test", admin).read(BOTH)
    assert (read.outcome, read.nodes) == (Outcome.UNSUPPORTED, ())
    assert detail in (read.detail or "")


@pytest.mark.parametrize(
    ("value", "manager"),
    [
        (f'{{"webServiceUrl":"http://b1:8080","loadManagerClassName":"{EXTENSIBLE}"}}'.encode(), EXTENSIBLE),
        (b'{"webServiceUrl":"http://b1:8080"}', None),
        (b'{"loadManagerClassName":7}', None),
        (b"[]", None),
        (b"?", None),
    ],
    ids=["extensible", "none", "a number", "a list", "no JSON"],
)
def test_a_registration_names_the_load_manager(value: bytes, manager: str | None) -> None:
    assert load_manager(value) == manager


@for_each(
    ("configuration", "outcome", "words"),
    [
        (
            {"zookeeperSessionExpiredPolicy": "reconnect", "loadManagerClassName": EXTENSIBLE},
            Outcome.OK,
            "zookeeperSessionExpiredPolicy is reconnect; ExtensibleLoadManagerImpl, so ownership is read from the ",
        ),
        (
            {"zookeeperSessionExpiredPolicy": "shutdown", "loadManagerClassName": "a.ModularLoadManagerImpl"},
            Outcome.ERROR,
            "zookeeperSessionExpiredPolicy is shutdown; ModularLoadManagerImpl, so ownership is read from ZooKeeper",
        ),
        *(
            (
                {"zookeeperSessionExpiredPolicy": "reconnect", "metadataStoreUrl": url},
                Outcome.UNSUPPORTED,
                f"in {store} (",
            )
            for url, store in [
                ("oxia://oxia:6648/broker", "Oxia"),
                ("etcd:http://etcd:2379", "etcd"),
                ("memory:local", "memory"),
                ("ETCD:https://etcd:2379", "etcd"),
                ("rocksdb:///data/metadata", "RocksDB"),
            ]
        ),
        *(
            ({"zookeeperSessionExpiredPolicy": "reconnect", "metadataStoreUrl": url}, Outcome.OK, "is reconnect")
            for url in ("zk:zk-1:2181/pulsar", "zk-1:2181,zk-2:2181", "", "etcd-1:2181", "oxia.example.org:2181")
        ),
        ({}, Outcome.ERROR, "zookeeperSessionExpiredPolicy is not set; an unknown load manager"),
    ],
)
def test_the_doctor_reads_the_brokers_settings(configuration: dict[str, str], outcome: Outcome, words: str) -> None:
    found = check_brokers(admin_of({"configuration": (200, configuration)}))
    assert found.outcome is outcome
    assert words in found.detail
    assert bool(found.remedies) is (outcome is not Outcome.OK)


def test_the_doctor_says_which_right_is_missing() -> None:
    found = check_brokers(admin_of({"configuration": (401, {"reason": "no"})}))
    assert found.outcome is Outcome.UNAUTHORIZED
    assert found.remedies
