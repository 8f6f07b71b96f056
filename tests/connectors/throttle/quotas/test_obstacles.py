"""Why quotas of a cluster must not, or need not, be set."""

import pytest
from kafka.errors import ClusterAuthorizationFailedError, NodeNotReadyError
from pydantic import ByteSize
from structlog.testing import capture_logs

from connectors.throttle.quotas.obstacles import Obstacles, find_obstacles
from policies.throttle.quota_plan import QuotaReason
from policies.throttle.quota_settings import Entity, QuotaEntity, QuotaSettings
from tests.connectors.throttle.quotas.memory import ALICE, ANY, Kafka, KafkaClient

EVERY_USER = Entity(user="default")


def settings(*entities: Entity, exclude: tuple[str, ...] = ()) -> QuotaSettings:
    given = tuple(QuotaEntity(user=each.user, client_id=each.client_id, base=ByteSize(1_000_000)) for each in entities)
    return QuotaSettings(entities=given, exclude=exclude)


def test_where_nothing_stands_in_the_way_nothing_is_said() -> None:
    found = find_obstacles(KafkaClient(Kafka()), settings(ANY, ALICE))
    assert found == Obstacles()
    assert (found.find_reason(ANY), list(found.explain())) == (None, [])


def test_brokers_with_a_callback_heed_no_quota_whatever_the_entity() -> None:
    kafka = Kafka(callbacks={2: "com.example.Own", 1: "com.example.Own"})
    found = find_obstacles(KafkaClient(kafka), settings(ANY))
    assert (found.find_reason(ANY), found.find_reason(ALICE)) == (QuotaReason.QUOTA_CALLBACK,) * 2
    (sentence,) = found.explain()
    assert sentence.startswith("broker 1, 2 has client.quota.callback.class=com.example.Own")
    assert "take it out of the broker's configuration" in sentence


def test_an_excluded_user_without_a_quota_of_their_own_would_be_caught() -> None:
    found = find_obstacles(KafkaClient(Kafka()), settings(EVERY_USER, ALICE, exclude=("carol",)))
    assert found.find_reason(EVERY_USER) is QuotaReason.EXCLUDED_USER
    assert found.find_reason(ALICE) is None
    (sentence,) = found.explain()
    assert "entity user=<default> would slow down the excluded user carol" in sentence
    assert "--entity-name carol" in sentence


def test_an_excluded_user_with_a_quota_of_their_own_is_not() -> None:
    kafka = Kafka(own={"carol": {Entity(user="carol")}})
    found = find_obstacles(KafkaClient(kafka), settings(EVERY_USER, exclude=("carol",)))
    assert found.find_reason(EVERY_USER) is None


class Guarded(KafkaClient):
    """Brokers that answer a question for their configuration with an error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(Kafka())
        self._error = error

    def callback_classes(self) -> dict[int, str]:
        raise self._error


def test_what_may_not_be_asked_is_no_obstacle_and_is_said() -> None:
    with capture_logs() as logs:
        found = find_obstacles(Guarded(ClusterAuthorizationFailedError()), settings(ANY))
    assert found.find_reason(ANY) is None
    assert ["a quota callback would not be noticed" in entry["event"] for entry in logs] == [True]


def test_brokers_that_do_not_answer_are_no_verdict() -> None:
    with pytest.raises(NodeNotReadyError):
        find_obstacles(Guarded(NodeNotReadyError()), settings(ANY))
