"""Raises the alerts about the loop itself: another loop on the same prefix, and topics that are missing or wrong.

The process that decides looks for both while it runs.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import structlog
from confluent_kafka import KafkaException

from connectors.kafka.topic_admin import TopicReport
from connectors.partitions.deciders import Decider, describe_loops
from policies.alerts import AlertBook, Condition, Sender, review
from policies.decisions import Alert, AlertStatus, Issuer, Mode
from policies.errors import UserError
from policies.host_alerts import HOST_ALERTS, LOOP, TOPIC_UNUSABLE, TWO_LOOPS_DECIDE
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


class LoopWatch:
    """Looks for other loops, and compares the topics with their plan.

    Args:
        deciders: returns the processes that decide or stand by.
        topics: compares the topics with their plan.
        publish: publishes a record (topic, key, value).
    """

    def __init__(
        self,
        prefix: str,
        deciders: Callable[[], Sequence[Decider]],
        topics: Callable[[], TopicReport],
        publish: Callable[[str, str, bytes], None],
    ) -> None:
        self._prefix = prefix
        self._deciders = deciders
        self._topics = topics
        self._publish = publish
        self._book = AlertBook()

    def run(self, stop: threading.Event) -> None:
        """Look until `stop` is set."""
        while not stop.wait(_LOOK_SECONDS):
            try:
                self.look(self._deciders(), self._topics(), datetime.now(UTC))
            except (KafkaException, TimeoutError, UserError) as error:
                _log.debug("the loop's group or topics cannot be read", detail=str(error))

    def look(self, deciders: Sequence[Decider], topics: TopicReport, now: datetime) -> None:
        """Publish each alert that begins, is due to be repeated, or ends."""
        found = [*self._find_loops(deciders), *_find_topics(topics)]
        self._book, alerts, _ = review(self._book, found, now, _SENDER)
        for alert in alerts:
            log = _log.error if alert.status is AlertStatus.FIRING else _log.info
            log(alert.summary, alert=alert.alert)
            self._publish(f"{self._prefix}.{Alert.topic}", alert.record_key(), decision_event(alert))
            self._publish(f"{self._prefix}.{AUDIT}", alert.cluster, audit_event(alert))

    def _find_loops(self, deciders: Sequence[Decider]) -> Iterator[Condition]:
        summary = describe_loops(deciders, self._prefix)
        if summary is not None:
            labels = {"hosts": ",".join(sorted({each.host for each in deciders}))}
            severity = HOST_ALERTS[TWO_LOOPS_DECIDE]
            yield Condition(TWO_LOOPS_DECIDE, self._prefix, severity, "other-checkpoint", summary, labels)


def _find_topics(topics: TopicReport) -> Iterator[Condition]:
    severity = HOST_ALERTS[TOPIC_UNUSABLE]
    for topic in topics.missing:
        summary = f"{topic} is missing: create it with `headgate topics create`"
        yield Condition(TOPIC_UNUSABLE, topic, severity, "missing", summary, {"topic": topic})
    for wrong in topics.unusable:
        yield Condition(TOPIC_UNUSABLE, wrong.topic, severity, wrong.key, str(wrong), {"topic": wrong.topic})
