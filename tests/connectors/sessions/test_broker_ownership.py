"""Ownership as the brokers report it, where ZooKeeper does not show it."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from connectors.pulsar.admin import AdminApi
from connectors.pulsar.settings import PulsarAdmin
from connectors.sessions.io import check_brokers
from connectors.sessions.ownership import MAX_SILENCE_SECONDS, BrokerOwnership
from connectors.zookeeper.json_znodes import load_manager
from policies.observations import Outcome
from policies.sessions.readings import OwnedNode, Ownerships
from tests.cases import for_each

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
    node = OwnedNode(path="/loadbalance/brokers/b1:8080", load_manager=load_manager(value))
    assert node.has_extensible_load_manager is (manager is not None)


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
