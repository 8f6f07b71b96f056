"""`headgate promise`: what a namespace is promised, told to the running loop, and what the loop says to it."""

import getpass
import socket
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry

from connectors.kafka.publisher import DELIVERY_TIMEOUT_SECONDS, Publisher, PublisherMetrics
from connectors.kafka.tail import Tail
from deploy.settings import Settings
from deploy.switch.loop_kafka import loop_connection
from policies.errors import UserError
from policies.isolation import IsolationSettings, NamespacePromise, Placement
from policies.isolation.rules import RuleSet
from policies.registry import decision_types, topic_of
from policies.wire import BadRecordError, EventReader, observation_event

_CLIENT_ID = "headgate-promise"
_POLL_SECONDS = 0.2
_GRACE_SECONDS = 2.0


@dataclass(frozen=True)
class PromiseRequest:
    """What is promised, and to whom."""

    cluster: str
    namespace: str
    promise: RuleSet | None
    """None: what the settings promise."""
    reason: str = ""
    timeout_seconds: float = 60.0


def give_promise(settings: Settings, request: PromiseRequest) -> Placement:
    """Tell the loop, and wait for the placement that it decides by the promise.

    Raises:
        UserError: the settings name no such cluster, the command cannot be sent, or nothing is decided in time.
    """
    if request.cluster not in settings.clusters:
        raise UserError(f"--cluster: the settings name no cluster {request.cluster}")
    block: IsolationSettings = settings.policies.isolation
    wanted = request.promise or block.for_cluster(request.cluster).promise
    connection, registry = loop_connection(settings), CollectorRegistry()
    decided, observed = settings.topics.topic(Placement.topic), settings.topics.topic(topic_of(NamespacePromise))
    with Tail(connection, {decided: None}, _CLIENT_ID) as tail:
        placements = _Placements(request, tail)
        placements.catch_up()
        with Publisher(connection, PublisherMetrics(registry), client_id=_CLIENT_ID) as publisher:
            publisher.publish(observed, request.cluster, _event(request))
            publisher.flush(DELIVERY_TIMEOUT_SECONDS + _GRACE_SECONDS)
        if not registry.get_sample_value("headgate_records_published_total", {"topic": observed}):
            raise UserError(f"the promise could not be sent to {observed}: check that Kafka is up and the topic exists")
        return placements.wait_for(wanted)


def _event(request: PromiseRequest) -> bytes:
    reading = NamespacePromise(
        cluster=request.cluster,
        namespace=request.namespace,
        promise=request.promise,
        actor=f"{getpass.getuser()}@{socket.gethostname()}",
        reason=request.reason,
    )
    return observation_event(reading, id=str(uuid.uuid4()), source="headgate/cli", time=datetime.now(UTC))


class _Placements:
    """The last placement of one namespace, as its topic has it."""

    def __init__(self, request: PromiseRequest, tail: Tail) -> None:
        self._request = request
        self._tail = tail
        self._key = f"{request.cluster}/{request.namespace}".encode()
        self._reader = EventReader(decision_types())
        self._last: Placement | None = None

    def catch_up(self) -> None:
        """Read what has been decided so far."""
        until = time.monotonic() + self._request.timeout_seconds
        while not self._tail.caught_up:
            self._poll()
            if time.monotonic() > until:
                raise UserError(self._tail.problem or "the decisions so far could not be read in time")

    def wait_for(self, promise: RuleSet) -> Placement:
        """Until the namespace's placement is held against this promise."""
        until = time.monotonic() + self._request.timeout_seconds
        while self._last is None or self._last.promise is not promise:
            self._poll()
            if time.monotonic() > until:
                raise UserError(
                    f"nothing was decided on {self._request.namespace} by this promise within "
                    f"{self._request.timeout_seconds:g} s: the query may not be running, or the namespace has no "
                    "bookie affinity. The promise is kept in Kafka and holds once it is read."
                )
        return self._last

    def _poll(self) -> None:
        for record in self._tail.poll(_POLL_SECONDS):
            if record.key != self._key or record.value is None:
                continue
            try:
                decision = self._reader.read(record.value).data
            except BadRecordError:
                continue
            if isinstance(decision, Placement):
                self._last = decision
