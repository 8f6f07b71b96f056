"""What responses and errors of Kafka become as readings."""

from datetime import timedelta
from typing import Any

import pytest
from kafka import errors
from kafka.protocol.admin import DescribeLogDirsResponse

from connectors.kafka.cluster_client import KafkaBroker
from connectors.kafka.log_dirs import WatchedKafka, cluster_failure, cluster_reading, log_dirs_reading
from connectors.kafka.outcomes import most_telling
from policies.errors import UserError
from policies.observations import Outcome
from policies.throttle.readings import BrokerMember, VolumeReading

KAFKA_STORAGE_ERROR = 56
CLUSTER_AUTHORIZATION_FAILED = 31


def response(version: int, *results: dict[str, Any], error_code: int = 0) -> Any:
    result = DescribeLogDirsResponse.DescribeLogDirsResult
    made = [result(**{"topics": [], "error_code": 0, **fields}) for fields in results]
    return DescribeLogDirsResponse(version=version, error_code=error_code, results=made)


def test_volumes_are_read_with_their_sizes() -> None:
    answer = response(
        5,
        {"log_dir": "/a", "total_bytes": 100, "usable_bytes": 7, "is_cordoned": True},
        {"log_dir": "/b", "total_bytes": 200, "usable_bytes": 0},
    )
    reading = log_dirs_reading("payments", 3, answer)
    assert (reading.subject(), reading.outcome, reading.detail) == ("payments/3", Outcome.OK, None)
    assert reading.volumes == (
        VolumeReading(log_dir="/a", total_bytes=100, usable_bytes=7, cordoned=True),
        VolumeReading(log_dir="/b", total_bytes=200, usable_bytes=0),
    )


def test_a_version_before_cordoning_is_never_cordoned() -> None:
    reading = log_dirs_reading("payments", 3, response(4, {"log_dir": "/a", "total_bytes": 9, "usable_bytes": 7}))
    assert reading.volumes == (VolumeReading(log_dir="/a", total_bytes=9, usable_bytes=7),)


def test_a_failed_disk_is_a_volume_with_its_error_and_without_sizes() -> None:
    failed = {"log_dir": "/a", "error_code": KAFKA_STORAGE_ERROR, "total_bytes": 0, "usable_bytes": 0}
    fine = {"log_dir": "/b", "total_bytes": 9, "usable_bytes": 8}
    reading = log_dirs_reading("payments", 3, response(5, failed, fine))
    assert reading.outcome is Outcome.OK
    assert reading.volumes[0] == VolumeReading(log_dir="/a", error="KAFKA_STORAGE_ERROR")
    assert reading.volumes[1].readable


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_broker_that_tells_no_sizes_is_unsupported(version: int) -> None:
    reading = log_dirs_reading("payments", 3, response(version, {"log_dir": "/a"}))
    assert (reading.outcome, reading.volumes) == (Outcome.UNSUPPORTED, ())
    assert "3.3" in (reading.detail or "")


@pytest.mark.parametrize("version", [3, 5])
def test_a_refusal_is_not_an_empty_success(version: int) -> None:
    reading = log_dirs_reading("payments", 3, response(version, error_code=CLUSTER_AUTHORIZATION_FAILED))
    assert (reading.outcome, reading.volumes) == (Outcome.UNAUTHORIZED, ())


@pytest.mark.parametrize(
    ("error", "outcome", "detail"),
    [
        (errors.KafkaTimeoutError("no answer within 5 s"), "timeout", "no answer within 5 s"),
        (errors.RequestTimedOutError("Request timed out"), "timeout", "Request timed out"),
        (errors.KafkaConnectionError("Connection timed out"), "timeout", "Connection timed out"),
        (errors.KafkaConnectionError("111 ECONNREFUSED"), "unreachable", "111 ECONNREFUSED"),
        (errors.KafkaConnectionError("DNS Resolution failure"), "unreachable", "DNS Resolution failure"),
        (errors.KafkaConnectionError(), "unreachable", "KafkaConnection"),
        (errors.KafkaConnectionError("Handshake failed: [SSL: X] y"), "error", "Handshake failed: [SSL: X] y"),
        (errors.NodeNotReadyError("3"), "unreachable", "3"),
        (errors.UnknownBrokerIdError(3), "unreachable", "3"),
        (errors.SaslAuthenticationFailedError("no"), "unauthorized", "no"),
        (errors.UnsupportedSaslMechanismError("PLAIN"), "unauthorized", "PLAIN"),
        (errors.ClusterAuthorizationFailedError(), "unauthorized", "ClusterAuthorizationFailed"),
        (errors.IncompatibleBrokerVersion("old"), "unsupported", "old"),
        (errors.UnsupportedVersionError(), "unsupported", "UnsupportedVersion"),
        (errors.UnknownError("what"), "error", "what"),
        (UserError("sasl.password_file: /x is empty."), "error", "sasl.password_file: /x is empty."),
        (KeyError("v"), "error", "'v'"),
        (ValueError("two\n lines" + "x" * 500), "error", "two lines" + "x" * 191),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_every_error_is_an_outcome(error: Exception, outcome: str, detail: str) -> None:
    for reading in (log_dirs_reading("payments", 3, error), cluster_failure("payments", error)):
        assert (reading.outcome, reading.detail) == (outcome, detail)


def test_of_several_failures_the_most_telling_is_told() -> None:
    refused, slow = errors.KafkaConnectionError("111 ECONNREFUSED"), errors.KafkaTimeoutError("slow")
    login = errors.SaslAuthenticationFailedError("no")
    assert most_telling([refused, slow]) is slow
    assert most_telling([refused, slow, login]) is login


def test_members_are_read_with_rack_and_fencing() -> None:
    reading = cluster_reading(
        "payments", (KafkaBroker(1, "h", 1, "a", fenced=False), KafkaBroker(2, "h", 2, None, fenced=True))
    )
    assert reading.outcome is Outcome.OK
    assert reading.brokers == (BrokerMember(broker=1, rack="a"), BrokerMember(broker=2, fenced=True))


def test_settings_are_flat_and_have_pinned_defaults() -> None:
    settings = WatchedKafka.model_validate({"bootstrap_servers": "a:1"})
    assert (settings.poll_interval, settings.timeout) == (timedelta(seconds=10), timedelta(seconds=5))
    assert WatchedKafka(bootstrap_servers="a:1", poll_interval=timedelta(seconds=2)).timeout_seconds == 2.0
