"""The command `headgate promise`: sends a namespace's promise to the running loop and waits for its decision."""

import time
from dataclasses import dataclass

from pydantic import ValidationError

from connectors.kafka.tail import Tail
from deploy.commands.namespaces import require_namespace
from deploy.commands.sending import actor, sayable, send
from deploy.settings.application import Settings
from deploy.switch.loop_kafka import loop_connection
from policies.errors import UserError
from policies.isolation import IsolationSettings, NamespacePromise, Placement
from policies.isolation.settings import RuleSet
from policies.registry import decision_types, topic_of
from policies.wire import BadRecordError, EventReader

_CLIENT_ID = "headgate-promise"
_POLL_SECONDS = 0.2
_CATCH_UP_SECONDS = 15.0
"""A Kafka that has said nothing for so long does not answer; the query may take longer to decide."""


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
        UserError: the settings name no such cluster, no record takes what is said, it cannot be sent, or nothing is
            decided in time.
    """
    if request.cluster not in settings.clusters:
        known = ", ".join(settings.clusters) or "none"
        raise UserError(f"--cluster: the settings name no cluster {request.cluster}; they name {known}")
    reading = _reading(request)
    block: IsolationSettings = settings.policies.isolation
    wanted = request.promise or block.for_cluster(request.cluster).promise
    connection = loop_connection(settings)
    decided, observed = settings.topics.topic(Placement.topic), settings.topics.topic(topic_of(NamespacePromise))
    with Tail(connection, {decided: None}, _CLIENT_ID) as tail:
        placements = _Placements(request, tail)
        placements.catch_up()
        send(connection, observed, [reading], what="the promise", client_id=_CLIENT_ID)
        return placements.wait_for(wanted)


def _reading(request: PromiseRequest) -> NamespacePromise:
    require_namespace(request.namespace)
    try:
        return NamespacePromise(
            cluster=request.cluster,
            namespace=request.namespace,
            promise=request.promise,
            actor=actor(),
            reason=request.reason,
        )
    except ValidationError as error:
        raise sayable(error) from None


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
        until = time.monotonic() + min(self._request.timeout_seconds, _CATCH_UP_SECONDS)
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
