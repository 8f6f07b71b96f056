"""The commands that ask the running loop for a decision: `headgate forget`, `adopt` and `promise`."""

from typing import TypeVar

from pydantic import ValidationError

from deploy.inspection.commands import InForceReader
from deploy.inspection.pausing import actor, ask, option_error
from deploy.policy_commands.apps import require_namespace
from deploy.settings.application import Settings
from policies.isolation import NamespacePromise, Placement
from policies.isolation.settings import IsolationSettings, RuleSet
from policies.observations import Reading
from policies.throttle.alerts import REPLACED
from policies.throttle.decisions import ThrottleFactor
from policies.throttle.fold import AdoptCommand, ForgetCommand, ThrottleCommand
from policies.units import UserError

Command = TypeVar("Command", bound=Reading)


def forget_log_dir(
    settings: Settings, cluster: str, broker: int, log_dir: str, reason: str, timeout_seconds: float
) -> ThrottleFactor:
    """Send the command to the loop, and return the factor that is decided with it."""
    settings.watched(cluster)
    command = _build(ForgetCommand, cluster=cluster, broker=broker, log_dir=log_dir, reason=reason)
    return _ask_throttle(settings, command, timeout_seconds)


def adopt_cluster(settings: Settings, cluster: str, reason: str, timeout_seconds: float) -> ThrottleFactor:
    """Adopt the Kafka cluster that the alert about a replaced one names, and return the factor that is decided."""
    settings.watched(cluster)
    with InForceReader(settings.loop_kafka(), settings.topics.prefix) as reader:
        alerts = [a for a in reader.now().alerts() if a.alert == REPLACED and a.cluster == cluster]
    if not alerts:
        raise UserError(f"the alert {REPLACED} does not fire for {cluster}: there is no other cluster to adopt")
    command = _build(AdoptCommand, cluster=cluster, cluster_id=alerts[0].labels["cluster_id"], reason=reason)
    return _ask_throttle(settings, command, timeout_seconds)


def send_promise(
    settings: Settings, cluster: str, namespace: str, promise: RuleSet | None, reason: str, timeout_seconds: float
) -> Placement:
    """Send a namespace's promise (None: that of the settings), and return the placement that the loop decides by it."""
    settings.watched(cluster)
    require_namespace(namespace)
    command = _build(NamespacePromise, cluster=cluster, namespace=namespace, promise=promise, reason=reason)
    block: IsolationSettings = settings.policies.isolation
    wanted = promise or block.for_cluster(cluster).promise
    return ask(
        settings,
        "isolation",
        command,
        Placement,
        lambda placement, _: (placement.namespace, placement.promise) == (namespace, wanted),
        what="promise",
        about=namespace,
        or_else=", or the namespace has no bookie affinity",
        timeout_seconds=timeout_seconds,
    )


def _build(kind: type[Command], **given: object) -> Command:
    try:
        return kind.model_validate({**given, "actor": actor()})
    except ValidationError as error:
        raise option_error(error) from None


def _ask_throttle(settings: Settings, command: ThrottleCommand, timeout_seconds: float) -> ThrottleFactor:
    return ask(
        settings,
        "throttle",
        command,
        ThrottleFactor,
        lambda factor, event_id: event_id in factor.evidence,
        what="command",
        about=command.cluster,
        timeout_seconds=timeout_seconds,
    )
