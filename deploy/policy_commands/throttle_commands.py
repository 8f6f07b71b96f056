"""The commands `headgate forget`, for a log dir that is gone or has failed, and `headgate adopt`, for a new cluster."""

from pydantic import ValidationError

from deploy.inspection.commands import InForceReader
from deploy.inspection.pausing import actor, ask, option_error
from deploy.settings.application import Settings
from policies.decisions import Decision
from policies.throttle.alerts import REPLACED
from policies.throttle.decisions import ThrottleFactor
from policies.throttle.fold import AdoptCommand, ForgetCommand, ThrottleCommand
from policies.units import UserError


def forget_log_dir(
    settings: Settings, cluster: str, broker: int, log_dir: str, reason: str, timeout_seconds: float
) -> ThrottleFactor:
    """Send the command to the loop, and return the factor that is decided with it.

    Raises:
        UserError: the settings do not name the cluster, an option is wrong, or the loop does not answer in time.
    """
    settings.watched(cluster)
    try:
        command = ForgetCommand(cluster=cluster, broker=broker, log_dir=log_dir, actor=actor(), reason=reason)
    except ValidationError as error:
        raise option_error(error) from None
    return command_throttle(settings, command, timeout_seconds)


def adopt_cluster(settings: Settings, cluster: str, reason: str, timeout_seconds: float) -> ThrottleFactor:
    """Adopt the Kafka cluster that the alert about a replaced one names, and return the factor that is decided.

    Raises:
        UserError: the settings do not name the cluster, no other cluster answers, or the loop does not answer in time.
    """
    settings.watched(cluster)
    with InForceReader(settings.loop_kafka(), settings.topics.prefix) as reader:
        alerts = [a for a in reader.now().alerts() if a.alert == REPLACED and a.cluster == cluster]
    if not alerts:
        raise UserError(f"the alert {REPLACED} does not fire for {cluster}: there is no other cluster to adopt")
    try:
        found = alerts[0].labels["cluster_id"]
        command = AdoptCommand(cluster=cluster, cluster_id=found, actor=actor(), reason=reason)
    except ValidationError as error:
        raise option_error(error) from None
    return command_throttle(settings, command, timeout_seconds)


def command_throttle(settings: Settings, command: ThrottleCommand, timeout_seconds: float) -> ThrottleFactor:
    """Send a command to the throttle policy, and return the factor that answers it.

    Raises:
        UserError: Kafka does not accept the command, or the loop does not answer in time.
    """

    def read_answer(decision: Decision, event_id: str) -> ThrottleFactor | None:
        return decision if isinstance(decision, ThrottleFactor) and event_id in decision.evidence else None

    answer = ask(settings, "throttle", command, read_answer, what="the command", timeout_seconds=timeout_seconds)
    if answer is None:
        raise UserError(
            f"nothing was decided on {command.cluster} by this command within {timeout_seconds:g} s: the query may not "
            "be running. Kafka keeps the command, and it takes effect when the query reads it."
        )
    return answer
