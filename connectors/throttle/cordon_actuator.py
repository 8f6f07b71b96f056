"""The cordon actuator: cordons volumes while they are at their limit, and opens them again."""

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from threading import Event

import structlog
from prometheus_client import CollectorRegistry

from connectors.actuation.actuator import Actuator, LoopTopics
from connectors.actuation.reports import FailingMetric, PublishAudit
from connectors.actuation.worker import SYSTEM_CLOCK, ActionRate, Clock, Worker
from connectors.kafka.cordons import CordonClient
from connectors.kafka.log_dirs import WatchedKafka
from connectors.kafka.outcomes import detail_of
from connectors.kafka.quotas import FAILURES
from connectors.kafka.tail import Record
from policies.decisions import Alert, AlertStatus, Mode
from policies.succession import has_expired
from policies.throttle.alert_kinds import BELOW_HARD, BELOW_SOFT
from policies.throttle.cordons import CordonApplication, CordonOutcome, CordonStep, CordonVerdict, plan_cordons
from policies.throttle.policy import NAME
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import VolumeKey, name_volume
from policies.wire import actuator_event

_VERIFY_SECONDS = 60.0
_AGAIN_SECONDS = 5.0
_MOST_CHANGES_A_MINUTE = 60
_BROKER = re.compile(r"[0-9]{1,9}")

_log = structlog.get_logger(__name__)


def connect(kafka: WatchedKafka) -> CordonClient:
    """Return a client of a real cluster."""
    return CordonClient(kafka, kafka.timeout_seconds)


class CordonMetrics(FailingMetric):
    """The metric of the cordon actuator, shared by all clusters. Make one per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(
            registry, "headgate_cordon_failing", "1 while log dirs cannot be cordoned or opened as decided."
        )


class CordonWorker(Worker[Alert]):
    """Follows the alerts of one cluster. An alert that has expired changes nothing: a dead loop opens no volume."""

    def __init__(
        self,
        cluster: str,
        kafka: WatchedKafka,
        throttle: ThrottleSettings,
        publish: PublishAudit,
        metrics: CordonMetrics,
        *,
        clock: Clock = SYSTEM_CLOCK,
        connect: Callable[[WatchedKafka], CordonClient] = connect,
    ) -> None:
        super().__init__(cluster, clock)
        self.alert = BELOW_SOFT if throttle.soft is not None else BELOW_HARD
        """The alert during which a volume is cordoned: that of the soft limit, or without one of the hard limit."""
        self._kafka = kafka
        self._publish = publish
        self._metrics = metrics
        self._connect = connect
        self._alerts: dict[VolumeKey, Alert] = {}
        self._confirmed: set[VolumeKey] = set()
        self._opened_by_hand: set[VolumeKey] = set()
        self._changes = ActionRate(_MOST_CHANGES_A_MINUTE, clock.monotonic)
        self._look_at: float | None = None
        self._reported: dict[VolumeKey, CordonApplication] = {}

    def recall(self, decision: Alert, appended_at: datetime) -> None:
        """Process an alert from before this start, in order of the topic."""
        if self._queue.recall(decision, appended_at):
            self._accept(decision, appended_at)

    def _accept(self, decision: Alert, appended_at: datetime) -> None:  # noqa: ARG002
        volume = int(decision.labels["broker"]), decision.labels["log_dir"]
        self._alerts[volume] = decision
        if not _is_wanted(decision):
            self._opened_by_hand.discard(volume)
        self._look_at = 0.0

    def _reject(self, decision: Alert, in_force: Alert) -> None:
        """A late alert needs no report: the one in force has its own."""

    def _close(self) -> None:
        """Each look has a connection of its own."""

    def pause_seconds(self) -> float | None:
        """Return the time until the next look; None if nothing is cordoned or to be cordoned."""
        return None if self._look_at is None else max(0.0, self._look_at - self._clock.monotonic())

    def reconcile(self, stop: Event) -> None:
        """Process received alerts, and cordon and open the volumes that are due."""
        self._queue.read()
        if stop.is_set() or self._look_at is None or self._look_at > self._clock.monotonic():
            return
        try:
            with closing(self._connect(self._kafka)) as client:
                left = [step for step in self._plan(client) if not self._carry_out(client, step)]
        except FAILURES as error:
            _log.warning("cordons cannot be read", cluster=self._cluster, detail=detail_of(error))
            is_done = False
        except Exception:  # this thread must survive any exception: later alerts need it
            _log.exception("cordons cannot be carried out", cluster=self._cluster)
            is_done = False
        else:
            is_done = not left
        self._metrics.failing.labels(self._cluster).set(not is_done)
        is_watched = bool(self._confirmed) or any(_is_wanted(alert) for alert in self._alerts.values())
        seconds = _VERIFY_SECONDS if is_done else _AGAIN_SECONDS
        self._look_at = self._clock.monotonic() + seconds if is_watched or not is_done else None

    def release(self) -> Iterator[str]:
        """Open all volumes that Headgate has cordoned, and yield a sentence for each.

        Raises:
            KafkaError: no usable answer; the volumes before it are open.
        """
        with closing(self._connect(self._kafka)) as client:
            cordoned = client.read_cordons(self._cluster)
            for volume in sorted(client.read_records()):
                if cordoned.get(volume):
                    client.cordon(volume, is_cordoned=False)
                client.record(volume, is_held=False)
                yield f"{self._cluster}: {name_volume(volume)} is not cordoned any more."

    def _plan(self, client: CordonClient) -> list[CordonStep]:
        now = self._clock.now()
        wanted = {volume: _is_wanted(alert) for volume, alert in self._alerts.items() if not has_expired(alert, now)}
        cordoned, recorded = client.read_cordons(self._cluster), client.read_records()
        steps = list(plan_cordons(wanted, recorded, cordoned, self._confirmed, self._opened_by_hand))
        self._confirmed = {volume for volume in recorded if cordoned.get(volume)}
        return steps

    def _carry_out(self, client: CordonClient, step: CordonStep) -> bool:
        """Carry one step out, and report it. Returns whether it need not be retried soon."""
        if not self.may_act() or self._changes.wait_seconds() > 0:
            return False
        is_cordon = step.verdict is CordonVerdict.CORDON
        try:
            if is_cordon and (obstacle := client.find_obstacle(step.volume[0])) is not None:
                self._report(step, CordonOutcome.REFUSED, obstacle)
                return True
            self._changes.count_action()
            if is_cordon:
                client.record(step.volume, is_held=True)
                client.cordon(step.volume, is_cordoned=True)
            else:
                if step.verdict is CordonVerdict.OPEN:
                    client.cordon(step.volume, is_cordoned=False)
                else:
                    self._opened_by_hand.add(step.volume)
                client.record(step.volume, is_held=False)
        except FAILURES as error:
            self._report(step, CordonOutcome.FAILED, detail_of(error))
            return False
        self._report(step, CordonOutcome.APPLIED)
        return True

    def _report(self, step: CordonStep, outcome: CordonOutcome, detail: str | None = None) -> None:
        """Publish and log a result, if it is new."""
        (broker, log_dir), alert = step.volume, self._alerts.get(step.volume)
        event = CordonApplication(
            cluster=self._cluster,
            broker=broker,
            log_dir=log_dir,
            verdict=step.verdict,
            outcome=outcome,
            alert_id=alert.alert_id if alert else None,
            detail=detail,
        )
        if self._reported.get(step.volume) == event and outcome is not CordonOutcome.APPLIED:
            return
        self._reported[step.volume] = event
        _log.info(f"{step.verdict.value} {outcome.value}", **event.model_dump(mode="json", exclude_none=True))
        self._publish(self._cluster, actuator_event(event, id=str(uuid.uuid4()), at=self._clock.now()))


def _is_wanted(alert: Alert) -> bool:
    return alert.status is AlertStatus.FIRING and alert.mode is Mode.ACTIVE


class CordonActuator(Actuator[Alert]):
    """Follows the alerts, and has the volumes of each cluster cordoned. Cordons stay when it stops."""

    def __init__(self, topics: LoopTopics, workers: Mapping[str, CordonWorker]) -> None:
        super().__init__("cordon actuator", "headgate-actuator", topics, workers, Alert)
        self._followed = {cluster: worker.alert for cluster, worker in workers.items()}

    def _read_decision(self, record: Record) -> Alert | None:
        alert = super()._read_decision(record)
        if alert is None or alert.policy != NAME or self._followed.get(alert.cluster) != alert.alert:
            return None
        names_volume = "log_dir" in alert.labels and _BROKER.fullmatch(alert.labels.get("broker", ""))
        return alert if names_volume else None
