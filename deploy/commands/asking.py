"""Sends a person's command to the running loop and waits for the decision that answers it."""

import time
import uuid
from collections.abc import Callable
from typing import TypeVar

from connectors.decided import DecisionsInForce
from deploy.commands.sending import send
from deploy.inspection.in_force import InForceReader
from deploy.settings.application import Settings
from policies.decisions import Decision
from policies.observations import Reading
from policies.registry import observed_topic

Answer = TypeVar("Answer", bound=Decision)


def ask(
    settings: Settings,
    policy: str,
    command: Reading,
    read_answer: Callable[[Decision, str], Answer | None],
    *,
    what: str,
    timeout_seconds: float,
) -> Answer | None:
    """Send a command, and return the decision that answers it; None if the loop does not answer in time.

    Args:
        policy: the policy that answers.
        read_answer: returns a decision if it answers the command, whose event has the given id; else None.
        what: the command's name in messages: ``the promise``.

    Raises:
        UserError: Kafka does not accept the command, or does not answer.
    """
    connection = settings.loop_kafka()
    in_force = DecisionsInForce(lambda cluster: cluster == command.cluster, policy=policy)
    with InForceReader(connection, settings.topics.prefix, in_force) as reader:
        reader.now()
        topic, event_id = settings.topics.topic(observed_topic(type(command))), str(uuid.uuid4())
        send(connection, topic, {event_id: command}, what=what, client_id=f"headgate-{what.split()[-1]}")
        until = time.monotonic() + timeout_seconds
        while time.monotonic() < until:
            for decision in reader.poll().decisions():
                if (answer := read_answer(decision, event_id)) is not None:
                    return answer
    return None
