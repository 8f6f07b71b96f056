"""Following decisions about quotas, and what keeps the actuator from starting, as the doctor finds it."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connectors.kafka.connection import KafkaConnection, WatchedKafka
from connectors.kafka.quotas import BrokerQuotaSettings
from connectors.policy_io import ProbeContext
from connectors.throttle import io
from connectors.throttle.io import judge_cordons
from connectors.throttle.own_quotas import Released
from connectors.throttle.quota_worker import QuotaWorker
from policies.free_space.levels import Original
from policies.free_space.limits import Limit
from policies.observations import Outcome
from policies.throttle import ThrottleSettings
from policies.throttle.readings import LogDirs, VolumeReading
from policies.throttle.settings import DEFAULT, Entity, QuotaSettings
from policies.units import UserError
from tests.connectors.throttle.test_quota_worker import KAFKA, Kafka, KafkaClient
from tests.policies.scenario import CLUSTER

MB = 1_000_000
STOPPED = dict.fromkeys((Entity(None, DEFAULT), Entity(DEFAULT), Entity(DEFAULT, DEFAULT)), 65_536)
"""What a stop sets where no quota was."""


def check(monkeypatch: pytest.MonkeyPatch, rates: Mapping[Entity, int], **settings: Any) -> tuple[Outcome, str, str]:
    originals = dict.fromkeys(STOPPED if rates == STOPPED else (), Original(None, 65_536))
    cluster = Kafka(rates=dict(rates), originals=originals)
    monkeypatch.setattr(io, "QuotaClient", lambda *_: KafkaClient(cluster))
    kafka = WatchedKafka(bootstrap_servers="k:1")
    found = io._check_quotas(CLUSTER, kafka, QuotaSettings.model_validate(settings))
    return found.outcome, found.detail or "", "\n".join(found.remedies)


@pytest.mark.parametrize(
    ("settings", "rates", "words"),
    [
        pytest.param({}, {}, "without a client id escape above factor 0, a stop reaches them", id="a stop"),
        pytest.param({"cover": "listed"}, {}, "without a client id escape, which {user: default}", id="listed"),
        pytest.param({}, {Entity(DEFAULT): MB}, "1 of them more specific than `entities` and scaled, too", id="none"),
        pytest.param(
            {}, STOPPED, "heeded by every broker; clients without a client id escape above", id="while stopped"
        ),
        pytest.param(
            {"exclude": ["bob"]}, {}, "without a limit in a throttle: bob", id="an excluded user without a quota"
        ),
    ],
)
def test_the_doctor_names_the_clients_that_may_escape(
    settings: dict[str, Any], rates: dict[Entity, int], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome, detail, _ = check(monkeypatch, rates, entities=[{"client_id": "default", "base": "10MB"}], **settings)
    assert (outcome, words in detail) == (Outcome.OK, True), detail
    assert ("without a client id" in detail) is (rates in ({}, STOPPED))


def test_entities_without_a_rate_at_factor_one_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"entities": [{"client_id": "default"}]}
    outcome, detail, _ = check(monkeypatch, {}, **settings)
    assert (outcome, "client-id=<default> has neither a `base` nor a" in detail) == (Outcome.ERROR, True)
    assert check(monkeypatch, {Entity(client_id=DEFAULT): MB}, **settings)[0] is Outcome.OK


SHARED = (Outcome.ERROR, ("another Kafka for the loop, or clusters.<name>.quotas: exclude: [hg]",))


@pytest.mark.parametrize(
    ("exclude", "loop_id", "found"),
    [
        pytest.param([], "one", [SHARED], id="the loop's topics are on the watched Kafka"),
        pytest.param([], "other", [(Outcome.OK, ())], id="they are on another one"),
        pytest.param([], None, [(Outcome.OK, ())], id="a broker that tells no id"),
        pytest.param(["hg"], "one", [(Outcome.OK, ())], id="Headgate's user is excluded"),
    ],
)
def test_the_doctor_names_a_stop_that_slows_headgate_itself(
    exclude: list[str], loop_id: str | None, found: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(kafka: KafkaConnection, _: float) -> SimpleNamespace:
        found_id = loop_id if kafka is loop else loop_id and "one"
        return SimpleNamespace(describe=lambda: None, close=lambda: None, cluster_id=found_id)

    monkeypatch.setattr(io, "ClusterClient", connect)
    sasl = {"mechanism": "SCRAM-SHA-512", "username": "hg", "password": "p"}
    loop = KafkaConnection.model_validate({"bootstrap_servers": "alias:1", "sasl": sasl})
    quotas = {"entities": [{"client_id": "default", "base": "10MB"}], "exclude": exclude}
    cluster = SimpleNamespace(
        kafka=WatchedKafka(bootstrap_servers="k:1"), setting=lambda kind: kind.model_validate(quotas)
    )
    context = ProbeContext("a", cast("Any", cluster), ThrottleSettings(), cast("Any", None), loop)
    probes = [each for each in io.list_probes(context) if each.asks == "own clients"]
    results = [each.ask() for each in probes]
    assert [(each.outcome, each.remedies) for each in results] == found
    assert [each.detail.startswith("the loop's topics are on this Kafka, too") for each in results] == [
        loop_id == "one"
    ]


RELEASED = {
    "one is put back": ((Released({"user=bob": None}, {}),), None, ["a: user=bob has no quota again"], ""),
    "nothing is known": ((Released({}, {}),), None, ["a: no record of Headgate is there"], ""),
    "one is refused": ((Released({}, {"user=bob": "why"}),), None, [], "Not put back on a: user=bob: why"),
    "confirmed": (
        (Released({}, {}, {"user=CN=a,O=b": MB}), Released({}, {})), "user=CN=a,O=b",
        ["a: user=CN=a,O=b has 1.0 MB/s, which counts as its original", "b: no record"], "",
    ),
    "found nowhere": ((Released({}, {}),), "client-id=default", [], "no watched cluster has such a quota"),
    "no entity": ((), "user=a,user=b", [], "not an entity such as user=alice"),
}  # fmt: skip


@pytest.mark.parametrize(("results", "forget", "printed", "refusal"), RELEASED.values(), ids=RELEASED)
def test_release_prints_what_it_did_and_ends_with_an_error_if_anything_is_left(
    results: tuple[Released, ...], forget: str | None, printed: list[str], refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = {name: SimpleNamespace(release=lambda *_, r=r: r) for name, r in zip("ab", results, strict=False)}
    monkeypatch.setattr(io, "_make_quota_workers", lambda *_, **__: workers)
    released = io.release_quotas(SimpleNamespace(), forget)  # type: ignore[arg-type]
    if refusal:
        with pytest.raises(UserError, match=refusal):
            list(released)
        return
    assert [s.startswith(p) for s, p in zip(released, printed, strict=True)] == [True] * len(printed)


def test_settings_that_do_not_fit_keep_the_actuator_from_beginning() -> None:
    kafka = Kafka(brokers={1: BrokerQuotaSettings("io.example.Callback")})
    settings = QuotaSettings.model_validate({"entities": [{"client_id": "default", "base": MB}]})
    worker = QuotaWorker(
        CLUSTER, KAFKA, settings, ThrottleSettings(), cast("Any", None), lambda _: None, connect=kafka.connect
    )
    (problem,) = io.find_refusals([worker])
    assert problem.startswith("clusters.payments.quotas: broker 1 has")


LIMIT = Limit(available_bytes_below=100)


def reading(broker: int, *volumes: tuple[str, int, bool]) -> LogDirs:
    """Each volume is (log dir, free of 1000 bytes or -1 if it cannot be read, whether it is cordoned)."""
    made = (VolumeReading(log_dir=d, total_bytes=1000, usable_bytes=free, cordoned=c) for d, free, c in volumes)
    return LogDirs(cluster="payments", broker=broker, outcome=Outcome.OK, volumes=tuple(made))


@pytest.mark.parametrize(
    ("volumes", "limit", "detail"),
    [
        pytest.param([("/a", 101, False)], LIMIT, "0 volumes cordoned", id="room"),
        pytest.param([("/a", 100, True)], LIMIT, "1 volume cordoned", id="cordoned"),
        pytest.param([("/a", -1, False)], LIMIT, "0 volumes cordoned", id="cannot be read"),
        pytest.param([("/a", 0, False)], None, "0 volumes cordoned", id="no limit"),
    ],
)
def test_there_is_nothing_to_do(volumes: list[tuple[str, int, bool]], limit: Limit | None, detail: str) -> None:
    found = judge_cordons("kafka:9092", {1: reading(1, *volumes)}, limit)
    assert (found.outcome, found.remedies) == (Outcome.OK, ())
    assert found.detail.startswith(detail)


def test_each_broker_gets_one_command_that_keeps_what_is_cordoned_already() -> None:
    readings = {
        2: reading(2, ("/a", 100, False), ("/b", 50, False), ("/c", 900, True), ("/d", 900, False)),
        1: reading(1, ("/a", 7, False)),
    }
    found = judge_cordons("kafka:9092", readings, LIMIT)
    assert found.outcome is Outcome.ERROR
    assert found.detail == "broker 1 /a is at its limit and still gets new partitions (and 2 more)"
    command = "kafka-configs.sh --bootstrap-server kafka:9092 --alter --entity-type brokers --entity-name"
    assert found.remedies == (
        f"{command} 1 --add-config 'cordoned.log.dirs=[/a]' (Kafka 4.3 or newer)",
        f"{command} 2 --add-config 'cordoned.log.dirs=[/a,/b,/c]' (Kafka 4.3 or newer)",
    )
