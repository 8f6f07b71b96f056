"""The command `headgate promise`: sends a namespace's promise to the running loop and waits for its decision."""

from dataclasses import dataclass

from pydantic import ValidationError

from deploy.commands.asking import ask
from deploy.commands.sending import actor, option_error
from deploy.policy_commands.isolation import require_namespace
from deploy.settings.application import Settings
from policies.decisions import Decision
from policies.errors import UserError
from policies.isolation import IsolationSettings, NamespacePromise, Placement
from policies.isolation.settings import RuleSet


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

    def read_answer(decision: Decision, _: str) -> Placement | None:
        if not isinstance(decision, Placement) or decision.namespace != request.namespace:
            return None
        return decision if decision.promise is wanted else None

    seconds = request.timeout_seconds
    answer = ask(settings, "isolation", reading, read_answer, what="the promise", timeout_seconds=seconds)
    if answer is None:
        raise UserError(
            f"nothing was decided on {request.namespace} by this promise within {seconds:g} s: the query may not be "
            "running, or the namespace has no bookie affinity. Kafka keeps the promise, and it takes effect when the "
            "query reads it."
        )
    return answer
