"""The command `headgate promise`: sends a namespace's promise to the running loop and waits for its decision."""

import time
from dataclasses import dataclass

from pydantic import ValidationError

from connectors.kafka.tail import Tail
from deploy.commands.sending import actor, option_error, send
from deploy.policy_commands.isolation import require_namespace
from deploy.settings.application import Settings
from deploy.switch.loop_kafka import loop_connection
from policies.errors import UserError
from policies.isolation import IsolationSettings, NamespacePromise, Placement
from policies.isolation.settings import RuleSet
from policies.registry import decision_types, observed_topic
from policies.wire import BadRecordError, EventReader

_CLIENT_ID = "headgate-promise"
_POLL_SECONDS = 0.2
_CATCH_UP_SECONDS = 15.0
"""Limit for reading the present decisions from Kafka; the query may take longer to decide."""


@dataclass(frozen=True)
class PromiseRequest:
    """The options of the command."""

    cluster: str
    namespace: str
    promise: RuleSet | None
    """None for the promise in the settings."""
    reason: str = ""
    timeout_seconds: float = 60.0


def send_promise(settings: Settings, request: PromiseRequest) -> Placement:
    """Send the promise to the loop, and return the placement that the loop decides by it.

    Raises:
        UserError: the settings do not name the cluster, an option is too long, Kafka does not accept the promise, or
            the loop does not decide in time.
    """
    if request.cluster not in settings.clusters:
        known = ", ".join(settings.clusters) or "none"
        raise UserError(f"--cluster: the settings name no cluster {request.cluster}; they name {known}")
    require_namespace(request.namespace)
    try:
        reading = NamespacePromise(
            cluster=request.cluster,
            namespace=request.namespace,
            promise=request.promise,
            actor=actor(),
            reason=request.reason,
        )
    except ValidationError as error:
        raise option_error(error) from None
    block: IsolationSettings = settings.policies.isolation
    wanted = request.promise or block.for_cluster(request.cluster).promise
    connection = loop_connection(settings)
    decided, observed = settings.topics.topic(Placement.topic), settings.topics.topic(observed_topic(NamespacePromise))
    with Tail(connection, {decided: None}, _CLIENT_ID) as tail:
        placements = _Placements(request, tail)
        placements.catch_up()
        send(connection, observed, [reading], what="the promise", client_id=_CLIENT_ID)
        return placements.wait_for(wanted)


class _Placements:
    """Follows the decided placements of one namespace."""

    def __init__(self, request: PromiseRequest, tail: Tail) -> None:
        self._request = request
        self._tail = tail
        self._key = f"{request.cluster}/{request.namespace}".encode()
        self._reader = EventReader(decision_types())
        self._last: Placement | None = None

    def catch_up(self) -> None:
        """Read the decisions so far."""
        until = time.monotonic() + min(self._request.timeout_seconds, _CATCH_UP_SECONDS)
        while not self._tail.caught_up:
            self._poll()
            if time.monotonic() > until:
                raise UserError(self._tail.problem or "the decisions so far could not be read in time")

    def wait_for(self, promise: RuleSet) -> Placement:
        """Return the first placement that was decided by this promise."""
        until = time.monotonic() + self._request.timeout_seconds
        while self._last is None or self._last.promise is not promise:
            self._poll()
            if time.monotonic() > until:
                raise UserError(
                    f"nothing was decided on {self._request.namespace} by this promise within "
                    f"{self._request.timeout_seconds:g} s: the query may not be running, or the namespace has no "
                    "bookie affinity. Kafka keeps the promise, and it takes effect when the query reads it."
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
