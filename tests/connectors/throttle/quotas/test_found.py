"""Why quotas of a cluster must not, or need not, be set."""

import pytest
from kafka.errors import ClusterAuthorizationFailedError, NodeNotReadyError
from structlog.testing import capture_logs

from connectors.kafka.quotas import BrokerQuotaSettings
from connectors.throttle.quotas.own_quotas import find_problems, read_broker_settings
from policies.throttle.quota_settings import QuotaSettings
from tests.connectors.throttle.quotas.test_worker import Kafka, KafkaClient

CALLBACK = BrokerQuotaSettings("com.example.Own")


def test_brokers_with_a_callback_are_named_by_its_class() -> None:
    settings = QuotaSettings.model_validate({"entities": [{"client_id": "default", "base": "1MB"}]})
    assert [*find_problems(settings, {1: BrokerQuotaSettings()}, {})] == []
    (sentence,) = find_problems(settings, {2: CALLBACK, 1: CALLBACK, 3: BrokerQuotaSettings()}, {})
    assert sentence.startswith("broker 1, 2 has client.quota.callback.class=com.example.Own")
    assert "take it out of the broker's configuration" in sentence


class Guarded(KafkaClient):
    """Brokers that answer a question for their configuration with an error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(Kafka())
        self._error = error

    def broker_settings(self) -> dict[int, BrokerQuotaSettings]:
        raise self._error


def test_a_refused_question_is_no_obstacle_and_is_logged() -> None:
    with capture_logs() as logs:
        assert read_broker_settings(Guarded(ClusterAuthorizationFailedError())) == {}
    assert ["a quota callback would not be noticed" in entry["event"] for entry in logs] == [True]


def test_brokers_that_do_not_answer_are_no_verdict() -> None:
    with pytest.raises(NodeNotReadyError):
        read_broker_settings(Guarded(NodeNotReadyError()))
