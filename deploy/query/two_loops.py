"""Raises an alert while another loop is started on the same prefix. The process that decides looks for it."""

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import structlog
from confluent_kafka import KafkaException

from connectors.partitions.deciders import Decider, describe_loops
from policies.alerts import AlertBook, Condition, Sender, review
from policies.decisions import Alert, AlertStatus, Issuer, Mode
from policies.errors import UserError
from policies.host_alerts import HOST_ALERTS, LOOP, TWO_LOOPS_DECIDE
from policies.registry import AUDIT
from policies.wire import audit_event, decision_event

_LOOK_SECONDS = 15.0
_SENDER = Sender(
    Issuer("loop", LOOP, Mode.ACTIVE, ""),
    # Kafka lists a killed process for some seconds, so the next look confirms the first one.
    grace=timedelta(seconds=_LOOK_SECONDS),
    repeat=timedelta(minutes=5),
)

_log = structlog.get_logger(__name__)


class TwoLoopsWatch:
    """Looks for other loops.

    Args:
        deciders: returns the processes that decide or stand by.
        publish: publishes a record (topic, key, value).
    """

    def __init__(
        self, prefix: str, deciders: Callable[[], Sequence[Decider]], publish: Callable[[str, str, bytes], None]
    ) -> None:
        self._prefix = prefix
        self._deciders = deciders
        self._publish = publish
        self._book = AlertBook()

    def run(self, stop: threading.Event) -> None:
        """Look until `stop` is set."""
        while not stop.wait(_LOOK_SECONDS):
            try:
                self.look(self._deciders(), datetime.now(UTC))
            except (KafkaException, TimeoutError, UserError) as error:
                _log.debug("the processes that decide cannot be listed", detail=str(error))

    def look(self, deciders: Sequence[Decider], now: datetime) -> None:
        """Publish the alert if it begins, is due to be repeated, or ends."""
        summary = describe_loops(deciders, self._prefix)
        labels = {"hosts": ",".join(sorted({each.host for each in deciders}))}
        found = summary and Condition(
            TWO_LOOPS_DECIDE, self._prefix, HOST_ALERTS[TWO_LOOPS_DECIDE], "other-checkpoint", summary, labels
        )
        self._book, alerts, _ = review(self._book, [found] if found else (), now, _SENDER)
        for alert in alerts:
            self._publish_alert(alert)

    def _publish_alert(self, alert: Alert) -> None:
        log = _log.error if alert.status is AlertStatus.FIRING else _log.info
        log(alert.summary, alert=alert.alert)
        self._publish(f"{self._prefix}.{Alert.topic}", alert.record_key(), decision_event(alert))
        self._publish(f"{self._prefix}.{AUDIT}", alert.cluster, audit_event(alert))
