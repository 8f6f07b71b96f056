"""Topics are created or only compared, a refusal names its remedy, and the doctor shows what a client may do."""

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation

from connectors.kafka import admin
from connectors.kafka.admin import TopicReport, check_topics, create_topics, find_single_copies
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.topics import TopicPlan, TopicSettings, plan
from policies.units import UserError
from tests.cases import for_each

CONNECTION = KafkaConnection(bootstrap_servers="k1:9092, k2:9092")
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
SETTINGS = TopicSettings()
PLANNED = {topic.topic: topic for topic in plan(SETTINGS)}


def failed(code: int, reason: str | None = None) -> KafkaException:
    return KafkaException(KafkaError(code, reason))


def result(value: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


@dataclass
class Cluster:
    """A cluster's topics, and what it refuses; stands where confluent-kafka's admin client does."""

    topics: dict[str, tuple[int, int, dict[str, str]]] = field(default_factory=dict)
    """Partitions, copies, configuration."""
    brokers: int = 1
    unreadable: frozenset[str] = frozenset()
    silent: KafkaException | None = None
    refuses: KafkaException | None = None
    hidden: KafkaException | None = None
    reported: list[KafkaError] = field(default_factory=list)
    """What librdkafka says to the error callback when it is served."""
    made_meanwhile: str | None = None
    created: list[str] = field(default_factory=list)

    def client(self, options: dict[str, Any], logger: object) -> "Cluster":
        self.options = options
        return self

    def poll(self, timeout: float) -> int:
        for error in self.reported:
            self.options["error_cb"](error)
        return len(self.reported)

    def list_topics(self, timeout: float) -> Any:
        if self.silent is not None:
            raise self.silent
        topics = {name: self._described(name) for name in self.topics}
        return SimpleNamespace(topics=topics, cluster_id=CLUSTER_ID, brokers=dict.fromkeys(range(self.brokers)))

    def _described(self, name: str) -> Any:
        partitions, copies, _ = self.topics[name]
        each = SimpleNamespace(replicas=list(range(copies)))
        error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE) if name in self.unreadable else None
        return SimpleNamespace(partitions=dict.fromkeys(range(partitions), each), error=error)

    def create_topics(self, new: list[Any], request_timeout: float) -> dict[str, "Future[Any]"]:
        return {topic.topic: self._create(topic) for topic in new}

    def _create(self, topic: Any) -> "Future[Any]":
        if self.refuses is not None:
            return result(self.refuses)
        self.topics[topic.topic] = topic.num_partitions, 1, dict(topic.config)
        if topic.topic == self.made_meanwhile:
            return result(failed(KafkaError.TOPIC_ALREADY_EXISTS))
        self.created.append(topic.topic)
        return result(None)

    def describe_configs(self, resources: list[Any], request_timeout: float) -> dict[Any, "Future[Any]"]:
        def config(name: str) -> dict[str, Any]:
            return {key: SimpleNamespace(value=value) for key, value in self.topics[name][2].items()}

        return {resource: result(self.hidden or config(resource.name)) for resource in resources}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(admin, "AdminClient", made.client)
    return made


def as_planned(topic: TopicPlan) -> tuple[int, int, dict[str, str]]:
    return topic.partitions, 1, dict(topic.config)


def test_what_is_missing_is_created_and_what_exists_is_left_alone(cluster: Cluster) -> None:
    first, *others = PLANNED
    cluster.topics[first] = as_planned(PLANNED[first])
    report = create_topics(CONNECTION, SETTINGS)
    assert report == TopicReport(cluster_id=CLUSTER_ID, created=tuple(sorted(others)), existing=(first,))
    assert report.as_planned
    assert sorted(cluster.created) == sorted(others)


def test_one_that_somebody_else_creates_meanwhile_was_there_before(cluster: Cluster) -> None:
    cluster.made_meanwhile = "headgate.audit"
    report = create_topics(CONNECTION, SETTINGS)
    assert report.existing == ("headgate.audit",)
    assert report.as_planned


def test_a_topic_whose_metadata_cannot_be_read_is_not_taken_for_one_that_exists(cluster: Cluster) -> None:
    cluster.topics = {topic: as_planned(each) for topic, each in PLANNED.items()}
    cluster.unreadable = frozenset(["headgate.audit"])
    assert check_topics(CONNECTION, SETTINGS).missing == ("headgate.audit",)


@for_each(
    ("topic", "changed", "is_fatal", "is_unusable"),
    [
        ("audit", (1, 1, {"message.timestamp.type": "CreateTime"}), True, True),
        ("shares", (11, 1, {}), True, True),
        ("shares", (13, 1, {}), False, False),
        ("audit", (2, 1, {}), False, False),
        ("audit", (1, 1, {"cleanup.policy": "compact"}), False, True),
    ],
)
def test_the_loop_does_not_start_with_some_differences(
    cluster: Cluster, topic: str, changed: tuple[int, int, dict[str, str]], is_fatal: bool, is_unusable: bool
) -> None:
    planned = PLANNED[f"headgate.{topic}"]
    cluster.topics = {planned.topic: (*changed[:2], {**planned.config, **changed[2]})}
    report = check_topics(CONNECTION, SETTINGS)
    assert (bool(report.fatal), bool(report.unusable)) == (is_fatal, is_unusable)


@for_each(("brokers", "copies", "found"), [(3, 1, ("headgate.audit",)), (3, 2, ()), (2, 1, ())])
def test_one_copy_is_told_where_there_are_brokers_for_three(
    cluster: Cluster, brokers: int, copies: int, found: tuple[str, ...]
) -> None:
    cluster.topics = {"headgate.audit": (1, copies, {})}
    cluster.brokers = brokers
    assert find_single_copies(CONNECTION, SETTINGS) == found


UNAUTHORIZED = KafkaError.TOPIC_AUTHORIZATION_FAILED
LOGIN, TLS, DOWN = KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN

REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "may not": ({"refuses": failed(UNAUTHORIZED)}, "grant its user Create, Describe and DescribeConfigs"),
    "copies": ({"refuses": failed(KafkaError.INVALID_REPLICATION_FACTOR)}, r"topics\.replication_factor does not fit"),
    "policy": ({"refuses": failed(KafkaError.POLICY_VIOLATION, "no")}, "the cluster's policy forbids such a topic: no"),
    "silent": ({"silent": failed(KafkaError._TRANSPORT)}, r"k1:9092,k2:9092 did not answer within 10 s"),
    "login": (
        {"silent": failed(KafkaError._TRANSPORT), "reported": [KafkaError(LOGIN, "bad"), KafkaError(DOWN)]},
        r"kafka\.sasl: k1:9092,k2:9092 refuses the login: bad",
    ),
    "tls": (
        {"silent": failed(KafkaError._TRANSPORT), "reported": [KafkaError(TLS, "x"), KafkaError(KafkaError._RESOLVE)]},
        r"kafka\.tls: no encrypted connection to k1:9092,k2:9092: x",
    ),
    "plain text": (
        {
            "silent": failed(KafkaError._TRANSPORT),
            "reported": [KafkaError(KafkaError._TRANSPORT, "SSL: connecting to a PLAINTEXT broker listener?")],
        },
        r"kafka\.tls: k1:9092,k2:9092 does not speak TLS",
    ),
    "name": (
        {"silent": failed(KafkaError._TIMED_OUT), "reported": [KafkaError(KafkaError._RESOLVE, "unknown host")]},
        r"unknown host.*check the address",
    ),
}


@pytest.mark.parametrize(("state", "says"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_says_what_to_mend(cluster: Cluster, state: dict[str, Any], says: str) -> None:
    for name, value in state.items():
        setattr(cluster, name, value)
    with pytest.raises(UserError, match=says):
        create_topics(CONNECTION, SETTINGS)


def test_topics_whose_configuration_is_hidden_are_not_taken_for_planned_ones(cluster: Cluster) -> None:
    cluster.topics = {topic: as_planned(each) for topic, each in PLANNED.items()}
    cluster.hidden = failed(UNAUTHORIZED)
    with pytest.raises(UserError, match="DescribeConfigs"):
        check_topics(CONNECTION, SETTINGS)


def test_options_that_the_client_refuses_are_the_users_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(options: dict[str, Any], logger: object) -> Cluster:
        raise failed(KafkaError._INVALID_ARG, "no such mechanism")

    monkeypatch.setattr(admin, "AdminClient", refuse)
    with pytest.raises(UserError, match="kafka: no such mechanism"):
        check_topics(CONNECTION, SETTINGS)


@pytest.mark.parametrize(
    ("writers", "is_open", "detail"),
    [
        pytest.param(None, True, "no authorizer", id="no authorizer"),
        pytest.param({"User:*"}, True, "every user may write headgate.decided.alerts", id="all users"),
        pytest.param({"User:decide", "User:mallory"}, True, "User:decide, User:mallory may write", id="a second one"),
        pytest.param({"User:decide"}, False, "no decided topic has a second writer", id="the query alone"),
        pytest.param(set(), False, "no decided topic has a second writer", id="super users only"),
    ],
)
def test_the_doctor_warns_where_others_may_write_decisions(
    monkeypatch: pytest.MonkeyPatch, writers: set[str] | None, is_open: bool, detail: str
) -> None:
    monkeypatch.setattr(admin, "reach", lambda *_, **__: 1)
    found: Any = None if writers is None else frozenset(writers)
    monkeypatch.setattr(admin, "find_writers", lambda *_: found)
    each = admin.loop_probes(CONNECTION, SETTINGS, ("decide",))
    (result,) = [probe.ask() for probe in each if probe.asks == "writers"]
    assert (result.is_open, detail in result.detail) == (is_open, True), result.detail


TOPIC = "headgate.observed.log-dirs"
EVERY = {each.name.title().replace("_", "") for each in AclOperation}


def saying(operations: Iterable[AclOperation] | None) -> Any:
    return SimpleNamespace(authorized_operations=operations)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        pytest.param(saying([AclOperation.WRITE]), {TOPIC: {"Write"}}, id="it may write"),
        pytest.param(saying([AclOperation.ALL]), {TOPIC: EVERY}, id="it may do all"),
        pytest.param(saying(None), {TOPIC: None}, id="the cluster does not say"),
        pytest.param(saying([]), {TOPIC: frozenset()}, id="it may nothing"),
        pytest.param(failed(KafkaError.TOPIC_AUTHORIZATION_FAILED), {TOPIC: frozenset()}, id="it is hidden"),
        pytest.param(failed(KafkaError.UNKNOWN_TOPIC_OR_PART), {}, id="there is no such topic yet"),
    ],
)
def test_what_a_client_may_do_with_a_topic_is_what_the_cluster_says(answer: Any, found: Any) -> None:
    assert admin._read_answers({TOPIC: result(answer)}) == found
