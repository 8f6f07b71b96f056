"""The quota messages as they go over the wire: what is asked, and what the answers mean."""

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest
from kafka import errors
from kafka.protocol.admin import AlterClientQuotasResponse, DescribeClientQuotasResponse, DescribeConfigsResponse

from connectors.kafka.cluster_client import KafkaBroker, NodeAnswer, NodeId
from connectors.kafka.quotas import CALLBACK_KEY, RATE_KEY, BrokerQuotaSettings, QuotaClient
from policies.free_space.levels import Original
from policies.throttle.quotas import record_entity
from policies.throttle.settings import DEFAULT, Entity

ALICE, ALICE_APP = Entity("alice"), Entity("alice", "app")
EVERYONE = Entity(DEFAULT)
UNAUTHORIZED = 31
Answers = Callable[[NodeId, Any], Any]


class Client(QuotaClient):
    """The client with `answers` in place of brokers; requests and responses pass through the wire's bytes."""

    def __init__(self, answers: Answers, brokers: tuple[KafkaBroker, ...] = ()) -> None:
        self._timeout_seconds = 30.0
        self._answers_of = answers
        self._members = brokers
        self._turn, self._tokens = 0, None
        self._silent: set[NodeId] = set()
        self.asked: list[tuple[NodeId, Any]] = []

    def describe(self) -> tuple[KafkaBroker, ...]:
        return self._members

    def _candidates(self) -> list[NodeId]:
        return [broker.broker for broker in self._members] or [7, 8]

    def _ask(self, node: NodeId, request: Any, answers: "SimpleQueue[NodeAnswer]") -> None:
        on_the_wire = type(request).decode(bytes(request.encode(version=1)), version=1)
        self.asked.append((node, on_the_wire))
        answer = self._answers_of(node, on_the_wire)
        if not isinstance(answer, BaseException):
            answer = type(answer).decode(bytes(answer.encode(version=1)), version=1)
        answers.put((node, answer))


def parts(entity: Entity) -> list[tuple[str, str | None]]:
    """As the wire has it."""
    given = (("user", entity.user), ("client-id", entity.client_id))
    return [(kind, None if name is DEFAULT else name) for kind, name in given if name is not None]


def described(*rates: tuple[Entity, dict[str, float]], error_code: int = 0) -> Any:
    entry = DescribeClientQuotasResponse.EntryData
    entries = [
        entry(
            entity=[entry.EntityData(entity_type=kind, entity_name=name) for kind, name in parts(entity)],
            values=[entry.ValueData(key=key, value=value) for key, value in values.items()],
        )
        for entity, values in rates
    ]
    return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=error_code, error_message=None, entries=entries)


def altered(*codes: tuple[Entity, int]) -> Any:
    entry = AlterClientQuotasResponse.EntryData
    entries = [
        entry(
            error_code=code,
            error_message="refused" if code else None,
            entity=[entry.EntityData(entity_type=kind, entity_name=name) for kind, name in parts(entity)],
        )
        for entity, code in codes
    ]
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=entries)


def configured(value: str | None, error_code: int = 0, window: tuple[str, str] | None = None) -> Any:
    result = DescribeConfigsResponse.DescribeConfigsResult
    entry = result.DescribeConfigsResourceResult
    sizes = dict(zip(("quota.window.num", "quota.window.size.seconds"), window or (), strict=False))
    values = {CALLBACK_KEY: value, **sizes}
    configs = [
        entry(name=key, value=each, read_only=True, is_sensitive=False, config_source=5, synonyms=[])
        for key, each in values.items()
    ]
    return DescribeConfigsResponse(
        throttle_time_ms=0,
        results=[
            result(error_code=error_code, error_message=None, resource_type=4, resource_name="1", configs=configs)
        ],
    )


def test_one_request_reads_all_quotas_and_the_records_of_the_originals() -> None:
    record = {RATE_KEY: 4096.0, "consumer_byte_rate": 512.0}
    answer = described(
        (ALICE, {RATE_KEY: 1024.0, "consumer_byte_rate": 7.0}), (EVERYONE, {"consumer_byte_rate": 7.0}),
        (record_entity(ALICE), record), (record_entity(ALICE_APP), {"consumer_byte_rate": 9.0}),
    )  # fmt: skip
    client = Client(lambda node, request: answer)
    seen = client.read()
    assert (seen.rates, seen.originals) == ({ALICE: 1024}, {ALICE: Original(4096, 512), ALICE_APP: Original(None, 9)})
    assert [(len(request.components), request.strict) for _, request in client.asked] == [(0, False)]


def test_an_entity_that_is_called_default_is_not_kafkas_default_entity() -> None:
    named = {Entity(client_id="default"): 50, Entity("<default>"): 7, Entity("default", "default"): 9}
    default = {Entity(client_id=DEFAULT): 4, EVERYONE: 5}
    rates = {**named, **default}
    client = Client(lambda node, request: described(*((e, {RATE_KEY: float(rate)}) for e, rate in rates.items())))
    assert client.read().rates == rates
    client = Client(lambda node, request: altered())
    client.alter(rates, {entity: Original(1, 2) for entity in rates})
    ((_, request),) = client.asked
    assert len({tuple((e.entity_type, e.entity_name) for e in entry.entity) for entry in request.entries}) == 10


def test_each_reading_asks_another_broker_and_one_that_is_silent_no_more() -> None:
    silent = errors.KafkaTimeoutError("no answer")
    client = Client(lambda node, request: silent if node == 2 else described(), BROKERS)
    for _ in range(6):
        client.read()
    nodes = [node for node, _ in client.asked]
    assert (nodes.count(2), {*nodes}) == (1, {1, 2, 3})


def test_a_rate_and_its_record_change_in_one_request_and_refusals_name_the_entity() -> None:
    client = Client(lambda node, request: altered((ALICE, 0), (record_entity(EVERYONE), UNAUTHORIZED)))
    refused = client.alter({ALICE: 2048, EVERYONE: None}, {ALICE: Original(None, 2048, 7), EVERYONE: None})
    ((_, request),) = client.asked
    assert not request.validate_only
    operations = [[(op.key, op.value, op.remove) for op in entry.ops] for entry in request.entries]
    assert operations == [
        [(RATE_KEY, 2048.0, False)], [(RATE_KEY, 0.0, True)],
        [(RATE_KEY, 0.0, True), ("consumer_byte_rate", 2048.0, False), ("controller_mutation_rate", 7.0, False)],
        [(RATE_KEY, 0.0, True), ("consumer_byte_rate", 0.0, True), ("controller_mutation_rate", 0.0, True)],
    ]  # fmt: skip
    assert list(refused) == [EVERYONE]
    assert isinstance(refused[EVERYONE], errors.ClusterAuthorizationFailedError)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (described(error_code=UNAUTHORIZED), errors.ClusterAuthorizationFailedError),
        (errors.KafkaTimeoutError("no answer"), errors.KafkaTimeoutError),
    ],
    ids=["refused", "silent"],
)
def test_what_was_not_answered_is_an_error_and_not_an_empty_answer(answer: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        Client(lambda node, request: answer).read()


BROKERS = tuple(KafkaBroker(n, "h", 9092, None, fenced=n == 3) for n in (1, 2, 3))


def by_broker(**answers: Any) -> Client:
    return Client(lambda node, request: answers[f"b{node}"], BROKERS)


def test_brokers_with_a_quota_callback_of_their_own_are_found_and_fenced_ones_not_asked() -> None:
    client = by_broker(b1=configured("io.strimzi.StaticQuotaCallback"), b2=configured(None))
    assert {n: each.callback for n, each in client.broker_settings().items()} == {
        1: "io.strimzi.StaticQuotaCallback", 2: None,
    }  # fmt: skip
    assert [(node, request.resources[0].resource_name) for node, request in client.asked] == [(1, "1"), (2, "2")]


def test_the_window_of_each_broker_is_read_and_one_that_does_not_answer_is_left_out() -> None:
    window = configured("Callback", window=("61", "2"))
    client = by_broker(b1=errors.KafkaTimeoutError("no answer"), b2=window)
    assert client.broker_settings() == {2: BrokerQuotaSettings("Callback", 122.0)}


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ({"b1": errors.KafkaTimeoutError("1"), "b2": errors.KafkaTimeoutError("2")}, errors.KafkaTimeoutError),
        ({"b1": configured("Callback"), "b2": configured(None, UNAUTHORIZED)}, errors.ClusterAuthorizationFailedError),
    ],
    ids=["nobody answers", "not allowed"],
)
def test_what_brokers_heed_is_not_known_when_none_answers_or_it_may_not_be_read(
    answers: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        by_broker(**answers).broker_settings()
