"""One key, batch after batch, without Spark: what the operator does, with what it keeps as bytes between."""

import json
from collections.abc import Sequence
from typing import Any

from policies.observations import Observation, Reading
from policies.units import to_millis
from policies.wire import ObservedRecord, observation_event
from streaming.host import PolicyHost
from streaming.key_state import KeyState, decode, encode
from streaming.transition import KeyTransition, reconcile
from tests.policies.scenario import CLUSTER, at
from tests.streaming.records import TOPIC, event


class Transitions:
    """One key of a query; the host has its policies, and the clusters there are."""

    def __init__(self, host: PolicyHost, policy: str = "throttle", cluster: str = CLUSTER) -> None:
        self.host = host
        self.key = (policy, cluster)
        self.kept: bytes | None = None
        self.next_offset = 0

    def take(self, seconds: float, *records: ObservedRecord) -> KeyTransition:
        """Run the transition of a batch."""
        before = None if self.kept is None else decode(self.kept)
        transition = reconcile(self.host, "headgate", self.key, before, records, to_millis(at(seconds)))
        self.kept = None if transition.key_state is None else encode(transition.key_state)
        return transition

    def record(
        self, value: bytes | Observation, *, appended: float, topic: str = TOPIC, partition: int = 0
    ) -> ObservedRecord:
        """The next record of the topic, appended at a second."""
        self.next_offset += 1
        appended_ms = to_millis(at(appended))
        value = value if isinstance(value, bytes) else event(value)
        return ObservedRecord(topic, partition, self.next_offset - 1, appended_ms, value)

    def reading(self, reading: Reading, *, appended: float, topic: str) -> ObservedRecord:
        """The next record, with a reading of any policy."""
        value = observation_event(reading, id=f"r{self.next_offset}", source="test", time=at(appended))
        return self.record(value, appended=appended, topic=f"headgate.{topic}")

    @property
    def key_state(self) -> KeyState:
        """The stored state, decoded."""
        assert self.kept is not None
        return decode(self.kept)


def told(transition: KeyTransition, topic: str) -> list[dict[str, Any]]:
    """The data that a transition published to a topic."""
    return [json.loads(value)["data"] for name, _, value in transition.outputs if name == topic]


def letters(transition: KeyTransition) -> list[dict[str, Any]]:
    return [data for data in told(transition, "dead-letters") if "count" not in data]


def counted(transition: KeyTransition) -> list[dict[str, Any]]:
    """The counts of suppressed dead letters."""
    return [data for data in told(transition, "dead-letters") if "count" in data]


def reasons(transition: KeyTransition) -> Sequence[str]:
    return [letter["reason"] for letter in letters(transition)]


def verdicts(transition: KeyTransition) -> list[str]:
    """The verdicts on the throttle factor."""
    return [each["verdict"] for each in told(transition, "decided.throttle")]
