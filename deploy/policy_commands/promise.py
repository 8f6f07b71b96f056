"""The command `headgate promise`: sends a namespace's promise to the running loop and waits for its decision."""

import time
import uuid
from dataclasses import dataclass

from pydantic import ValidationError

from connectors.decided import DecisionsInForce
from deploy.commands.sending import actor, option_error, send
from deploy.inspection.in_force import InForceReader
from deploy.policy_commands.isolation import require_namespace
from deploy.settings.application import Settings
from policies.errors import UserError
from policies.isolation import IsolationSettings, NamespacePromise, Placement
from policies.isolation.settings import RuleSet
from policies.registry import observed_topic

_CLIENT_ID = "headgate-promise"


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
    settings.watched(request.cluster)
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
    connection = settings.loop_kafka()
    in_force = DecisionsInForce(lambda cluster: cluster == request.cluster, policy="isolation")
    with InForceReader(connection, settings.topics.prefix, in_force) as reader:
        reader.now()
        observed = settings.topics.topic(observed_topic(NamespacePromise))
        send(connection, observed, {str(uuid.uuid4()): reading}, what="the promise", client_id=_CLIENT_ID)
        return _await_placement(reader, request, wanted)


def _await_placement(reader: InForceReader, request: PromiseRequest, promise: RuleSet) -> Placement:
    """Return the namespace's placement once it is decided by this promise."""
    until = time.monotonic() + request.timeout_seconds
    while time.monotonic() < until:
        for decision in reader.poll().decisions():
            if not isinstance(decision, Placement) or decision.namespace != request.namespace:
                continue
            if decision.promise is promise:
                return decision
    raise UserError(
        f"nothing was decided on {request.namespace} by this promise within {request.timeout_seconds:g} s: the query "
        "may not be running, or the namespace has no bookie affinity. Kafka keeps the promise, and it takes effect "
        "when the query reads it."
    )
